"""Public collections by name. A new one is a file, a line here, and a test on a tiny folder."""

from nobackfill.data.listing import Dataset
from nobackfill.data.readers.cars196 import CARS196
from nobackfill.data.readers.cub200 import CUB200
from nobackfill.data.readers.flickr8k import FLICKR8K
from nobackfill.data.readers.folder import FOLDER
from nobackfill.data.readers.gldv2 import GLDV2
from nobackfill.data.readers.inshop import INSHOP
from nobackfill.data.readers.manifest import MANIFEST
from nobackfill.data.readers.market1501 import MARKET1501
from nobackfill.data.readers.omniglot import OMNIGLOT
from nobackfill.data.readers.roxford_rparis import ROXFORD5K, RPARIS6K
from nobackfill.data.readers.rstpreid import RSTPREID
from nobackfill.data.readers.stanford_products import STANFORD_PRODUCTS

DATASETS: dict[str, Dataset] = {
    "cars196": CARS196,
    "cub200": CUB200,
    "flickr8k": FLICKR8K,
    "folder": FOLDER,
    "gldv2": GLDV2,
    "inshop": INSHOP,
    "manifest": MANIFEST,
    "market1501": MARKET1501,
    "omniglot": OMNIGLOT,
    "roxford5k": ROXFORD5K,
    "rparis6k": RPARIS6K,
    "rstpreid": RSTPREID,
    "stanford_products": STANFORD_PRODUCTS,
}
