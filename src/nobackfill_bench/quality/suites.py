"""All suites of the benchmark by name, with their text in RESULTS.md."""

from dataclasses import replace

from nobackfill.methods import METHODS
from nobackfill_bench.quality import recipes
from nobackfill_bench.quality.features import backbone_features, caption_vectors, omniglot_vectors
from nobackfill_bench.quality.frozen_features import ScratchSuite
from nobackfill_bench.quality.heads import FittedSuite
from nobackfill_bench.quality.sequences import SequenceSuite
from nobackfill_bench.quality.suite import Suite
from nobackfill_bench.quality.trained import TrainedSuite

CHOSEN = (  # for expensive suites: the methods of the paper, the strongest others, and ours
    "independent",
    "prototype_alignment",
    "ndpp",
    "odpp",
    "bct",
    "rbcl",
    "cross_supcon",
    "janus",
    "member_contrast",
)
FLICKR8K = ("timm", "torchvision", "flickr8k", "flickr8k_heads/captions.safetensors", "weights")
HEADS = tuple(name for name, method in METHODS.items() if not method.same_kind)

HAN = (
    "Characters are classes and typefaces are the photographs: {counts} of the 27,484 Han "
    "characters of Unicode, drawn by up to 16 typefaces of Debian's free fonts at 40 × 40. 1,500 "
    "other characters are searched: drawings by 4 typefaces (three families) are queries for the "
    "drawings by 12 others (eight families). All images are turned, scaled, sheared, shifted, "
    "blurred, redrawn with other strokes, partly covered and made noisy: searched ones once, "
    "training images anew in each epoch. The strength (1.75) was chosen on 1,500 further "
    "characters so that old/old is about a third. A residual network of 0.7 million weights, 128 "
    "dimensions, 8 epochs of SGD with learning rate 0.2 and a cosine schedule in bfloat16, batches "
    "of {batch}. New class means are running means. Methods have their default options."
)

SUITES: dict[str, Suite] = {
    "glyphs": TrainedSuite(
        title="Built-in glyphs, 15 % → 100 % of the classes",
        text=(
            "200 training classes; 100 other classes are searched. A small network, 64 dimensions, "
            "12 epochs. Each seed draws new glyphs; no data is required.",
            "The setting is that of the demo. It was chosen from about a dozen settings because "
            "plain alignment was compatible in it, so *compatible* shows what can happen, not how "
            "often it happens.",
        ),
        recipe=recipes.glyphs,
        embedding_dim=64,
        train_classes=200,
        was_seen=True,
    ),
    "cub-heads": ScratchSuite(
        title="CUB-200, heads on frozen features, trained from scratch",
        text=(
            "The old model is a head on MobileNetV2 features, trained on 30 of 100 classes. The "
            "new models are heads on ResNet-50 features, trained on all 100. 100 other classes are "
            "searched. 1,024 hidden units, 256 dimensions, BatchNorm, dropout 0.3, AdamW with "
            "learning rate 0.002 and a cosine schedule, 60 epochs in batches of 256.",
            "The old head is worse than its raw input. The suite compares methods with a damaged "
            "old model; it does not show a useful upgrade.",
        ),
        load=backbone_features("cub200"),
        ways=HEADS,
        was_seen=True,
        requires=("cub200/features.npz",),
    ),
    "landmarks-heads": ScratchSuite(
        title="50 landmarks, heads on frozen features, trained from scratch",
        text=(
            "As `cub-heads`, with 25 training classes (7 for the old head) and 25 searched "
            "classes. The old and the independent head are far worse than their raw input.",
        ),
        load=backbone_features("landmarks50"),
        ways=HEADS,
        was_seen=True,
        requires=("landmarks50/features.npz",),
    ),
    "omniglot-heads": FittedSuite(
        title="Omniglot, heads fitted to stored vectors",
        text=(
            "Stored vectors of networks trained on 10 % (old) and, independently, on all (new) of "
            "964 characters; 659 other characters are searched. The suite compares "
            "`CompatibleHead` with each method that it supports (all vectors mapped), closed "
            "forms, and the head named `janus`. Its new/old equals that of "
            "`cross_supcon`; only the stored vectors differ: held-out classes decide whether they "
            "are mapped or stay as they are.",
        ),
        load=omniglot_vectors,
        was_seen=True,
        requires=("omniglot_heads/omniglot_0.npz",),
    ),
    "cub-vectors": FittedSuite(
        title="CUB-200, heads fitted to frozen features",
        text=(
            "Unchanged MobileNetV2 (old) → ResNet-50 (new) features; the heads are fitted on 100 "
            "classes, and 100 others are searched. Only the seed of the head changes; closed forms "
            "have no seed. In all suites of fitted heads, *independent* is the raw new vector.",
        ),
        load=backbone_features("cub200"),
        was_seen=True,
        requires=("cub200/features.npz",),
    ),
    "landmarks-vectors": FittedSuite(
        title="50 landmarks, heads fitted to frozen features",
        text=("As above, with 25 classes to fit on; 25 other classes are searched.",),
        load=backbone_features("landmarks50"),
        was_seen=True,
        requires=("landmarks50/features.npz",),
    ),
    "captions": FittedSuite(
        title="Captions of Flickr8k, heads fitted from groups of five",
        text=(
            "MiniLM truncated to 128 dimensions (old) → all 384 (new). The old vectors are part of "
            "the new ones, so this upgrade is easy. The captions of 1,000 test images are "
            "searched.",
        ),
        load=caption_vectors,
        supervision="groups",
        ways=("procrustes", "ridge", "prototype_alignment", "cross_supcon", "janus", "auto"),
        was_seen=True,
        requires=("flickr8k_heads/flickr8k.npz",),
    ),
    "omniglot": TrainedSuite(
        title="Omniglot, 10 % → 100 % of the classes",
        text=(
            "964 training characters; 659 other characters are searched. Every image is a query "
            "for all others (13,180). ResNet-18 from scratch at 35 × 35, 256 dimensions, SGD with "
            "learning rate 0.1 and a cosine schedule: the old model 60 epochs in batches of 64, "
            "new models 30 epochs in batches of 256.",
            "Two earlier versions of `janus` (contrast in place of ranking) were also run here, on "
            "seeds 0 to 2; their results are in commit 3fce821.",
        ),
        ways=CHOSEN,
        seeds=5,
        recipe=recipes.omniglot_upgrade(0.1),
        embedding_dim=256,
        train_classes=964,
        was_seen=True,
        requires=("timm", "omniglot/images_background"),
    ),
    "omniglot-30": TrainedSuite(
        title="Omniglot, 30 % → 100 % of the classes",
        text=(
            "As above, with a stronger old model.",
            "`janus` was run here as `janus:contrast_weight=0`, an option that no longer exists, "
            "and was compared with a version that also had a contrast. It was chosen when both "
            "results were known.",
        ),
        ways=CHOSEN,
        seeds=3,
        recipe=recipes.omniglot_upgrade(0.3),
        embedding_dim=256,
        train_classes=964,
        was_seen=True,
        requires=("timm", "omniglot/images_background"),
    ),
    "omniglot-sequence": SequenceSuite(
        title="Omniglot as a sequence, 10 % → 30 % → 100 % of the classes",
        text=(
            "As `omniglot`; each model is trained to be compatible with the previous one. 2/1 are "
            "queries of the second model on the gallery of the first. Methods that map queries map "
            "them from each gallery to the previous one. AC is the share of pairs of a later model "
            "and an earlier gallery in which the later model beats the gallery's own model; AM is "
            "the mean of all entries. An earlier version of `janus` was also run here.",
        ),
        ways=tuple(way for way in CHOSEN if way != "independent"),
        seeds=3,
        recipe=recipes.omniglot_sequence,
        was_seen=True,
        requires=("timm", "omniglot/images_background"),
    ),
    "cub-finetune": TrainedSuite(
        title="CUB-200, MobileNetV2 on half of the classes → ResNet-50 on all",
        text=(
            "Classes 1 to 100 are used for training; classes 101 to 200 are searched. Every image "
            "is a query for all others (5,924). Images of at most 128 pixels, ImageNet weights, 20 "
            "epochs of SGD in bfloat16. The learning rate was chosen from 0.01 and 0.05 by old/old "
            "on seed 0.",
            "Seeds 0 and 1 were first run minutes before the commit that froze `janus`, together "
            "with `share=1`. All of their runs were repeated with the frozen code: `janus`, "
            "`rbcl`, `cross_supcon`, `bct` and `independent` gave identical results; methods that "
            "align with class means, which a GPU sums in any order, differed by up to 0.3.",
        ),
        ways=CHOSEN,
        seeds=3,
        recipe=recipes.from_recipes("cub200"),
        embedding_dim=256,
        train_classes=100,
        was_seen=True,
        requires=("timm", "torchvision", "cub200", "weights"),
    ),
    "landmarks-roxford": TrainedSuite(
        title="50 landmarks, MobileNetV2 on half of the classes → ResNet-50 on all",
        text=(
            "Trained on 4,996 photographs of 50 landmarks. The tests are 1,250 other photographs "
            "of these landmarks (all are training classes of the new model, half of them of the "
            "old one) and ROxford5k (buildings that are in no training set; 70 uncropped queries, "
            "4,993 images of at most 176 pixels). Images at 128 pixels, ImageNet weights, 12 "
            "epochs of SGD in bfloat16.",
        ),
        ways=CHOSEN,
        seeds=3,
        recipe=recipes.from_recipes("landmarks50"),
        embedding_dim=256,
        train_classes=50,
        requires=("timm", "torchvision", "landmarks50", "roxford5k", "weights"),
    ),
    "flickr8k": TrainedSuite(
        title="Flickr8k, texts and images, on the side of the images",
        text=(
            "Each caption is a query for its photo among 1,000 photos that are in no training set. "
            "The tables below add photos as queries for their five captions, and captions as "
            "queries for the four others of their photo. The old model is MobileNetV2 on half of "
            "6,000 photos, the new model ResNet-50 on all. The text encoders are projections of a "
            "frozen MiniLM. 256 dimensions, photos of at most 112 pixels, 20 epochs of SGD in "
            "bfloat16 with learning rate 0.01 and a cosine schedule. A contrastive loss of images "
            "and texts replaces classification. As in the paper, methods use only images, and each "
            "photo is a class.",
            "Optimiser and learning rate were chosen from four settings by the mAP of the old and "
            "the independent model on the development list, seed 0. The methods of the next suite "
            "were chosen by their mAP on that list. The test list was searched once.",
            "`bct` requires the classifier of the old model, which a model of images and texts "
            "does not have: see `flickr8k-classified`.",
        ),
        ways=tuple(way for way in CHOSEN if way != "bct"),
        seeds=3,
        recipe=recipes.from_recipes("flickr8k"),
        embedding_dim=256,
        train_classes=6000,
        requires=FLICKR8K,
    ),
    "flickr8k-both": TrainedSuite(
        title="Flickr8k, texts and images, both towards the old images",
        text=(
            "As above, but methods also use texts and compare both modalities with the old vectors "
            'of the images (`compatible = "both"` and `towards = "image"` in [pairs]). The texts '
            "learn to search the existing gallery of images.",
        ),
        ways=(*CHOSEN[:4], "cross_supcon", "janus", "member_contrast"),
        seeds=3,
        recipe=recipes.from_recipes("flickr8k", "pairs.compatible=both", "pairs.towards=image"),
        embedding_dim=256,
        train_classes=6000,
        requires=FLICKR8K,
    ),
    "flickr8k-classified": TrainedSuite(
        title="Flickr8k, texts and images, with classifiers",
        text=(
            "As `flickr8k`, but every model, including the old one, also classifies photos "
            "(`classification = true` in [pairs]); each photo is a class. `bct` needs these "
            "classifiers.",
        ),
        ways=(*CHOSEN[:5], "cross_supcon", "janus", "member_contrast"),
        seeds=3,
        recipe=recipes.from_recipes("flickr8k", "pairs.classification=true"),
        embedding_dim=256,
        train_classes=6000,
        requires=FLICKR8K,
    ),
    "han-4k": TrainedSuite(
        title="Han characters, 1,199 → 3,997 classes",
        text=(HAN.format(counts="3,997 (1,199 for the old model)", batch=256),),
        seeds=3,
        recipe=recipes.from_recipes("han/4k"),
        embedding_dim=128,
        train_classes=3997,
        requires=("fonts",),
    ),
    "han-24k": TrainedSuite(
        title="Han characters, 7,318 → 24,393 classes",
        text=(
            HAN.format(counts="24,393 (7,318 for the old model)", batch=512),
            "At most seven drawings of each training character.",
        ),
        ways=("independent", "independent_contrastive", *CHOSEN[1:]),
        seeds=3,
        recipe=recipes.from_recipes("han/24k"),
        embedding_dim=128,
        train_classes=24393,
        requires=("fonts",),
    ),
    "han-4k-wide": TrainedSuite(
        title="Han characters, 1,199 → 3,997 classes, a larger new network",
        text=("As `han-4k`; the new networks have 64 channels and three blocks per stage.",),
        ways=(*CHOSEN[:5], "janus", "member_contrast"),
        seeds=3,
        recipe=recipes.from_recipes("han/4k_wide"),
        embedding_dim=128,
        train_classes=3997,
        requires=("fonts",),
    ),
    "han-sequence": SequenceSuite(
        title="Han characters as a sequence, 1,199 → 3,997 → 13,323 classes",
        text=(
            "As `han-4k`, with at most seven drawings of each training character; 9, 30 and 100 % "
            "of the classes, as in the paper's sequence. See `omniglot-sequence`.",
        ),
        ways=(*CHOSEN[1:5], "janus", "member_contrast"),
        seeds=3,
        recipe=recipes.from_sequence("han/sequence"),
        requires=("fonts",),
    ),
    "han-4k-short": TrainedSuite(
        title="Han characters, 1,199 → 3,997 classes, short trainings to choose options by",
        text=(
            "As `han-4k`, but the new models are trained on at most seven drawings of each "
            "character, for 4 epochs in batches of 128. 1,500 validation characters are searched, "
            "by which options may be chosen. The second table has the test characters of "
            "`han-4k`. An unconstrained model learns too little in so few steps to compare with.",
        ),
        ways=("prototype_alignment", "ndpp_old", "ndpp", "odpp_old", "odpp", "member_contrast"),
        seeds=3,
        recipe=recipes.from_recipes(
            "han/4k",
            "data.searched=validation",
            "tests.test_characters.name=han",
            "tests.test_characters.distortion=1.75",
            new=("data.images_per_class=7", "train.epochs=4", "train.batch_size=128"),
        ),
        embedding_dim=128,
        train_classes=3997,
        requires=("fonts",),
    ),
    "han-24k-wide": TrainedSuite(
        title="Han characters, 7,318 → 24,393 classes, a larger new network",
        text=("As `han-24k`; the new networks have 64 channels and three blocks per stage.",),
        ways=(*CHOSEN[:5], "janus", "member_contrast"),
        seeds=3,
        recipe=recipes.from_recipes("han/24k_wide"),
        embedding_dim=128,
        train_classes=24393,
        requires=("fonts",),
    ),
}

# Runs of 16 November 2026, which started from other initial weights than a run of today: studies
# compare runs of the same seed, so they are kept apart from the table.
SUITES["glyphs-studies"] = replace(
    SUITES["glyphs"],
    title="Built-in glyphs, runs of the studies",
    has_section=False,
)
