"""Every suite by name, with the words that RESULTS.md has for it."""

from nobackfill.methods import METHODS
from nobackfill_bench.quality import recipes
from nobackfill_bench.quality.features import backbone_features, caption_vectors, omniglot_vectors
from nobackfill_bench.quality.frozen_features import ScratchSuite
from nobackfill_bench.quality.heads import FittedSuite
from nobackfill_bench.quality.sequences import SequenceSuite
from nobackfill_bench.quality.suite import Suite
from nobackfill_bench.quality.trained import TrainedSuite

CHOSEN = (  # where a run is dear: the paper's, the strongest others, and ours
    "independent",
    "prototype_alignment",
    "ndpp",
    "odpp",
    "bct",
    "rbcl",
    "cross_supcon",
    "janus",
)
FLICKR8K = ("timm", "torchvision", "flickr8k", "flickr8k_heads/captions.safetensors", "weights")
HEADS = tuple(name for name, method in METHODS.items() if not method.same_kind)

SUITES: dict[str, Suite] = {
    "glyphs": TrainedSuite(
        title="Built-in glyphs, 15 % → 100 % of the classes",
        says=(
            "200 training classes, 100 others are searched; a small net, 64 dimensions, 12 epochs. "
            "Drawn anew for each seed; needs no data.",
            "The setting is the demo's. It was chosen long ago from about a dozen because plain "
            "alignment was compatible in it, so *compatible* shows what can happen, not how often "
            "it will.",
        ),
        recipe=recipes.glyphs,
        embedding_dim=64,
        train_classes=200,
        was_seen=True,
    ),
    "cub-heads": ScratchSuite(
        title="CUB-200, heads on frozen features, trained from scratch",
        says=(
            "The old model is a head on MobileNetV2 features, trained on 30 of 100 classes; new "
            "ones are heads on ResNet-50 features, trained on all; 100 other classes are searched. "
            "1,024 hidden, 256 dimensions, BatchNorm, dropout 0.3, AdamW 0.002 along half a cosine "
            "for 60 epochs in batches of 256.",
            "Mind that the old head is worse than its raw input, so this compares methods under a "
            "damaged old model; it shows no upgrade worth making.",
        ),
        load=backbone_features("cub200"),
        ways=HEADS,
        was_seen=True,
        wants=("cub200/features.npz",),
    ),
    "landmarks-heads": ScratchSuite(
        title="50 landmarks, heads on frozen features, trained from scratch",
        says=(
            "As `cub-heads`, with 25 classes to train on (the old head on 7 of them) and 25 that "
            "are searched. The old and the independent head are far below their raw input.",
        ),
        load=backbone_features("landmarks50"),
        ways=HEADS,
        was_seen=True,
        wants=("landmarks50/features.npz",),
    ),
    "omniglot-heads": FittedSuite(
        title="Omniglot, heads fitted to stored vectors",
        says=(
            "Stored vectors of networks trained on 10 % (old) and, independently, on all (new) of "
            "964 characters; 659 others are searched. `CompatibleHead` by each method that it "
            "allows, with all vectors mapped; closed forms; and `janus`: the head as it is by "
            "default, so its new/old is that of `cross_supcon`; only what is stored differs: the "
            "mapped vector or the new one as it is, as held-out classes decide.",
        ),
        load=omniglot_vectors,
        was_seen=True,
        wants=("omniglot_heads/omniglot_0.npz",),
    ),
    "cub-vectors": FittedSuite(
        title="CUB-200, heads fitted to frozen features",
        says=(
            "MobileNetV2 (old) → ResNet-50 (new) features as they are; 100 classes to fit on, 100 "
            "others are searched. Only the seed of the head changes; closed forms have none. "
            "Here and in the other suites of fitted heads, *independent* is the raw new vector.",
        ),
        load=backbone_features("cub200"),
        was_seen=True,
        wants=("cub200/features.npz",),
    ),
    "landmarks-vectors": FittedSuite(
        title="50 landmarks, heads fitted to frozen features",
        says=("As above; 25 classes to fit on, 25 others are searched.",),
        load=backbone_features("landmarks50"),
        was_seen=True,
        wants=("landmarks50/features.npz",),
    ),
    "captions": FittedSuite(
        title="Captions of Flickr8k, heads fitted from groups of five",
        says=(
            "MiniLM cut to 128 dimensions (old) → all 384 (new): the old vectors are a part of the "
            "new ones, so this is an easy upgrade. Searched are the captions of 1,000 test images.",
        ),
        load=caption_vectors,
        supervision="groups",
        ways=("procrustes", "ridge", "prototype_alignment", "cross_supcon", "janus"),
        was_seen=True,
        wants=("flickr8k_heads/flickr8k.npz",),
    ),
    "omniglot": TrainedSuite(
        title="Omniglot, 10 % → 100 % of the classes",
        says=(
            "964 training characters; 659 others are searched, every image asking for all others "
            "(13,180). ResNet-18 from scratch at 35 × 35, 256 dimensions, SGD 0.1 along half a "
            "cosine: the old model 60 epochs in batches of 64, new ones 30 in batches of 256.",
            "Two earlier versions of `janus` (contrast in place of ranking) were run here too, on "
            "seeds 0 to 2; their lines are in commit 3fce821.",
        ),
        ways=CHOSEN,
        seeds=5,
        recipe=recipes.omniglot_upgrade(0.1),
        embedding_dim=256,
        train_classes=964,
        was_seen=True,
        wants=("timm", "omniglot/images_background"),
    ),
    "omniglot-30": TrainedSuite(
        title="Omniglot, 30 % → 100 % of the classes",
        says=(
            "As above, with a stronger old model.",
            "`janus` was run here as `janus:contrast_weight=0`, an option of that day, beside "
            "another version that had a contrast too, and was chosen over it with their numbers in "
            "view.",
        ),
        ways=CHOSEN,
        seeds=3,
        recipe=recipes.omniglot_upgrade(0.3),
        embedding_dim=256,
        train_classes=964,
        was_seen=True,
        wants=("timm", "omniglot/images_background"),
    ),
    "omniglot-sequence": SequenceSuite(
        title="Omniglot as a sequence, 10 % → 30 % → 100 % of the classes",
        says=(
            "As `omniglot`; each model is made compatible with the one before. 2/1 is the second "
            "model's queries on the first one's gallery; methods that map queries map them on "
            "from gallery to gallery. AC is the share of later models and earlier galleries in "
            "which the later model finds more than the gallery's own; AM is the mean of all. An "
            "earlier version of `janus` was run here too.",
        ),
        ways=tuple(way for way in CHOSEN if way != "independent"),
        seeds=3,
        recipe=recipes.omniglot_sequence,
        was_seen=True,
        wants=("timm", "omniglot/images_background"),
    ),
    "cub-finetune": TrainedSuite(
        title="CUB-200, MobileNetV2 on half of the classes → ResNet-50 on all",
        says=(
            "Classes 1 to 100 are trained on, 101 to 200 are searched, every image asking for all "
            "others (5,924). Images of at most 128 pixels, ImageNet weights, 20 epochs of SGD in "
            "bfloat16. The learning rate was chosen from 0.01 and 0.05 on seed 0 by old/old.",
            "Seeds 0 and 1 were first run minutes before the commit that froze `janus`, and beside "
            "`share=1`. They were run again, whole, with the frozen code, and `janus`, `rbcl`, "
            "`cross_supcon`, `bct` and `independent` came out the same to the last digit; those "
            "that align with class means, which a GPU adds up in any order, by up to 0.3 apart.",
        ),
        ways=CHOSEN,
        seeds=3,
        recipe=recipes.from_recipes("cub200"),
        embedding_dim=256,
        train_classes=100,
        was_seen=True,
        wants=("timm", "torchvision", "cub200", "weights"),
    ),
    "landmarks-roxford": TrainedSuite(
        title="50 landmarks, MobileNetV2 on half of the classes → ResNet-50 on all",
        says=(
            "4,996 photographs of 50 landmarks are trained on. Searched are 1,250 other "
            "photographs of these landmarks (classes that the new model knows, half of which the "
            "old one knew), and ROxford5k (buildings that neither has seen; 70 uncropped queries, "
            "4,993 images of at most 176 pixels). Images at 128 pixels, ImageNet weights, 12 "
            "epochs of SGD in bfloat16.",
        ),
        ways=CHOSEN,
        seeds=3,
        recipe=recipes.from_recipes("landmarks50"),
        embedding_dim=256,
        train_classes=50,
        wants=("timm", "torchvision", "landmarks50", "roxford5k", "weights"),
    ),
    "flickr8k": TrainedSuite(
        title="Flickr8k, texts and images, on the side of the images",
        says=(
            "A caption asks for the photo it describes, among 1,000 that no model has seen (and, "
            "below, photos for their five captions, and captions for the four others of their "
            "photo). The old model is MobileNetV2 on half of 6,000 photos, the new ResNet-50 on "
            "all; text towers are projections behind a frozen MiniLM; 256 dimensions, photos of "
            "at most 112 pixels, 20 epochs of SGD 0.01 in bfloat16 along half a cosine. The "
            "contrast of images and texts takes the place of classification. As in the paper, "
            "methods see images alone, each photo being a class.",
            "Optimiser and learning rate were chosen from four by what the old and the "
            "independent model find on the development list, seed 0; the ways of the next suite "
            "by what they find there. The test list was searched once.",
            "`bct` asks for the classifier of the old model, which a model of images and texts has "
            "none of: see `flickr8k-classified`.",
        ),
        ways=tuple(way for way in CHOSEN if way != "bct"),
        seeds=3,
        recipe=recipes.from_recipes("flickr8k"),
        embedding_dim=256,
        train_classes=6000,
        wants=FLICKR8K,
    ),
    "flickr8k-both": TrainedSuite(
        title="Flickr8k, texts and images, both towards the old images",
        says=(
            "As above, but methods see texts too, and compare both with the old vectors of the "
            'images (`compatible = "both"` and `towards = "image"` in [pairs]): texts learn to ask '
            "the gallery that is there.",
        ),
        ways=("independent", "prototype_alignment", "ndpp", "odpp", "cross_supcon", "janus"),
        seeds=3,
        recipe=recipes.from_recipes("flickr8k", "pairs.compatible=both", "pairs.towards=image"),
        embedding_dim=256,
        train_classes=6000,
        wants=FLICKR8K,
    ),
    "flickr8k-classified": TrainedSuite(
        title="Flickr8k, texts and images, with classifiers",
        says=(
            "As `flickr8k`, but every model, the old one too, classifies photos beside the "
            "contrast (`classification = true` in [pairs]), each photo being a class: what `bct` "
            "needs.",
        ),
        ways=("independent", "prototype_alignment", "ndpp", "odpp", "bct", "cross_supcon", "janus"),
        seeds=3,
        recipe=recipes.from_recipes("flickr8k", "pairs.classification=true"),
        embedding_dim=256,
        train_classes=6000,
        wants=FLICKR8K,
    ),
}
