"""Reports: a page is described once (`Page`) and rendered to HTML, Markdown or the terminal."""
