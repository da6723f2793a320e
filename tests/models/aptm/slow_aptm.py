"""APTM read slowly: one window, head and token at a time, by the published names."""

import math

import torch


def linear(w, name, x):
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def norm(w, name, x, eps):
    centred = x - x.mean(-1, keepdim=True)
    scale = torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
    return centred / scale * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def attend(queries, keys, values, scores_added):
    """Attention of one head; `scores_added[i][j]` is None where `i` does not see `j`."""
    found = []
    for i, query in enumerate(queries):
        seen = [j for j in range(len(keys)) if scores_added[i][j] is not None]
        scores = [query @ keys[j] / math.sqrt(len(query)) + scores_added[i][j] for j in seen]
        shares = torch.stack(scores).softmax(0)
        found.append(sum(share * values[j] for share, j in zip(shares, seen, strict=True)))
    return torch.stack(found)


def swin_block(w, name, x, heads, side, shift):
    """One block on a map of (rows, columns, channels)."""
    rows, columns, channels = x.shape
    normed = norm(w, f"{name}.norm1", x, 1e-5)
    table = w[f"{name}.attn.relative_position_bias_table"]
    attended = torch.zeros_like(x)
    for top in range(0, rows, side):
        for left in range(0, columns, side):
            # The window after the map was moved up and left by `shift`, around its edges.
            places = [(top + i, left + j) for i in range(side) for j in range(side)]
            wrapped = [(r >= rows - shift, c >= columns - shift) for r, c in places]
            source = [((r + shift) % rows, (c + shift) % columns) for r, c in places]
            tokens = torch.stack([normed[place] for place in source])
            query, key, value = linear(w, f"{name}.attn.qkv", tokens).chunk(3, dim=1)
            of_heads, width = [], channels // heads
            for head in range(heads):
                own = slice(head * width, (head + 1) * width)
                added = [[None] * len(places) for _ in places]
                for i, (r, c) in enumerate(places):
                    for j, (s, d) in enumerate(places):
                        if wrapped[i] == wrapped[j]:
                            row = (r - s + side - 1) * (2 * side - 1) + (c - d + side - 1)
                            added[i][j] = table[row, head]
                of_heads.append(attend(query[:, own], key[:, own], value[:, own], added))
            joined = linear(w, f"{name}.attn.proj", torch.cat(of_heads, 1))
            for place, token in zip(source, joined, strict=True):
                attended[place] = token
    x = x + attended
    hidden = gelu(linear(w, f"{name}.mlp.fc1", norm(w, f"{name}.norm2", x, 1e-5)))
    return x + linear(w, f"{name}.mlp.fc2", hidden)


def image_tokens(w, image, *, depths, heads, window):
    """The mean token and the tokens of one image (channels, height, width)."""
    w = {k.removeprefix("vision_encoder."): v for k, v in w.items() if k.startswith("vision_enc")}
    rows, columns = (side // 4 for side in image.shape[1:])
    kernel = w["patch_embed.proj.weight"]
    x = torch.stack(
        [
            torch.stack(
                [
                    (kernel * image[:, 4 * r : 4 * r + 4, 4 * c : 4 * c + 4]).sum((1, 2, 3))
                    for c in range(columns)
                ]
            )
            for r in range(rows)
        ]
    )
    x = norm(w, "patch_embed.norm", x + w["patch_embed.proj.bias"], 1e-5)
    for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
        rows, columns = x.shape[:2]
        side = min(window, rows, columns)
        for block in range(depth):
            shifts = block % 2 == 1 and min(rows, columns) > window
            name = f"layers.{stage}.blocks.{block}"
            x = swin_block(w, name, x, count, side, side // 2 if shifts else 0)
        if stage < len(depths) - 1:
            four = [x[i::2, j::2] for j in (0, 1) for i in (0, 1)]
            name = f"layers.{stage}.downsample"
            x = linear(w, f"{name}.reduction", norm(w, f"{name}.norm", torch.cat(four, 2), 1e-5))
    tokens = norm(w, "norm", x, 1e-5).flatten(0, 1)
    return torch.cat([tokens.mean(0, keepdim=True), tokens])


def bert_attention(w, name, x, other, seen, heads):
    """Attention of the tokens `x` to the tokens `other` of which some are seen, and the sum."""
    query, key, value = (
        linear(w, f"{name}.self.{part}", source)
        for part, source in (("query", x), ("key", other), ("value", other))
    )
    width = query.shape[1] // heads
    added = [[0.0 if can else None for can in seen] for _ in x]
    found = []
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        found.append(attend(query[:, own], key[:, own], value[:, own], added))
    found = linear(w, f"{name}.output.dense", torch.cat(found, 1))
    return norm(w, f"{name}.output.LayerNorm", found + x, 1e-12)


def bert_layers(w, x, seen, layers, heads, image=None):
    for layer in layers:
        name = f"text_encoder.bert.encoder.layer.{layer}"
        x = bert_attention(w, f"{name}.attention", x, x, seen, heads)
        if image is not None:
            x = bert_attention(w, f"{name}.crossattention", x, image, [1] * len(image), heads)
        hidden = gelu(linear(w, f"{name}.intermediate.dense", x))
        x = norm(
            w, f"{name}.output.LayerNorm", linear(w, f"{name}.output.dense", hidden) + x, 1e-12
        )
    return x


def read_text(w, numbers, seen, *, heads, until):
    """The tokens of one text after the layers that read texts alone."""
    of = {key: w[f"text_encoder.bert.embeddings.{key}_embeddings.weight"] for key in
          ("word", "position", "token_type")}  # fmt: skip
    x = torch.stack(
        [of["word"][n] + of["position"][i] + of["token_type"][0] for i, n in enumerate(numbers)]
    )
    x = norm(w, "text_encoder.bert.embeddings.LayerNorm", x, 1e-12)
    return bert_layers(w, x, seen, range(until), heads)


def fuse(w, read, seen, image, *, heads, layers):
    """The tokens of one text after the layers that attend to the tokens of one image."""
    return bert_layers(w, read, seen, layers, heads, image)


def match_logits(w, fused):
    hidden = norm(w, "itm_head.1", linear(w, "itm_head.0", fused[0]), 1e-5)
    return linear(w, "itm_head.3", gelu(hidden))


def word_scores(w, token):
    name = "text_encoder.cls.predictions"
    hidden = gelu(linear(w, f"{name}.transform.dense", token))
    hidden = norm(w, f"{name}.transform.LayerNorm", hidden, 1e-12)
    words = w["text_encoder.bert.embeddings.word_embeddings.weight"]
    return words @ hidden + w[f"{name}.bias"]
