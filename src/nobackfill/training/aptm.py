"""The forward pass of APTM and its three losses, as in its fine-tuning."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core import distributed
from nobackfill.core.atomic_files import find_path
from nobackfill.core.config import PairsConfig
from nobackfill.data.changed_captions import Synonyms, change_caption, read_synonyms
from nobackfill.data.collection import Collection
from nobackfill.data.loader import Batch
from nobackfill.methods.losses import pair_contrast
from nobackfill.models import DualEncoder
from nobackfill.models.aptm.fusion import plain_words
from nobackfill.models.aptm.losses import masked_word_loss, matching_loss
from nobackfill.models.aptm.masking import Vocabulary, mask_words
from nobackfill.models.aptm.model import Aptm, Judged
from nobackfill.models.text.tokenizer import open_tokenizer
from nobackfill.training.forward import ImageTextForwardPass, select_part

CHANGED = 0.8  # weight of the losses of texts with changed words


@dataclass(frozen=True, eq=False)
class AptmForwardPass(ImageTextForwardPass):
    """Forward pass of APTM: each image with one text, that text changed, and that text masked.

    The contrast is over the batch of all processes; negatives of the matching loss are drawn within
    the part of each.

    Attributes:
        encoder: Model that prepares changed texts.
        vocabulary: Vocabulary of the tokenizer.
        synonyms: Synonyms for changed texts; None for changes without them.
    """

    encoder: DualEncoder
    vocabulary: Vocabulary
    synonyms: Synonyms | None

    @classmethod
    def of(
        cls,
        collection: Collection,
        rows: Int[Tensor, " images"],
        model: DualEncoder,
        config: PairsConfig,
    ) -> "AptmForwardPass":
        """Prepares all texts of the training images for a model."""
        assert isinstance(model, Aptm)
        plain = ImageTextForwardPass.of(collection, rows, model, config)
        size = model.bert.model.config.vocab_size  # type: ignore[union-attr]
        vocabulary = Vocabulary.of(open_tokenizer(model.bert.tokenizer), int(size))  # type: ignore[arg-type]
        path = model.bert.synonyms
        synonyms = None if path is None else read_synonyms(find_path(path, "synonyms"))
        texts, prepared = plain.captions, plain.prepared
        return cls(collection, rows, texts, prepared, config, model, vocabulary, synonyms)

    def match(
        self,
        model: nn.Module,
        batch: Batch,
        drawn: Int[Tensor, " items"],
        generator: torch.Generator,
    ) -> tuple[Float[Tensor, "items dim"], Float[Tensor, "items dim"], dict[str, Tensor]]:
        """See `ImageTextForwardPass`."""
        # Change and mask the texts of this process.
        rank, world = distributed.part()
        own, labels = (select_part(each, (rank, world)) for each in (drawn, batch.labels))
        seed = int(torch.randint(2**40, (), generator=generator))
        chance = torch.Generator().manual_seed(seed * world + rank)
        texts = self.prepared[own]
        rows = own.tolist()
        plain = [plain_words(self.captions.texts[row]) for row in rows]
        changed = self.encoder.prepare(
            [change_caption(text, chance, self.synonyms) for text in plain],
            [self.captions.ids[row] for row in rows],
        )
        masked = mask_words(texts.cpu(), self.vocabulary, chance)

        # Run the model on them.
        device = texts.device
        inputs = (changed, masked.prepared, masked.places)
        judged = Judged(*model(batch.images, texts, *(each.to(device) for each in inputs), labels))
        count = len(batch.items)
        image, text, changed_text = (distributed.gather(each, count) for each in judged[:3])
        terms = aptm_terms(
            judged._replace(image=image, text=text, changed=changed_text),
            batch.labels,
            labels,
            masked.targets.to(device),
        )
        return image, text, terms


def aptm_terms(
    judged: Judged,
    labels: Int[Tensor, " batch"],
    own_labels: Int[Tensor, " own"],
    targets: Int[Tensor, "own places"],
) -> dict[str, Float[Tensor, ""]]:
    r"""Returns the three losses of APTM's fine-tuning.

    .. math::
        \text{ITC} = C(v, t) + 0.8\, C(v, t'), \qquad
        \text{ITM} = M(v, t) + 0.8\, M(v, t'), \qquad \text{MLM}

    with images :math:`v`, texts :math:`t`, and the same texts with changed words :math:`t'`.

    Args:
        judged: Outputs of the model for a batch, with the embeddings of all processes.
        labels: Class of each item in the batch.
        own_labels: Class of each item of this process.
        targets: Masked tokens of this process's texts.
    """
    contrast, changed = (
        pair_contrast(judged.image, text, labels, temperature=judged.temperature)
        for text in (judged.text, judged.changed)
    )
    match, changed_match = (
        matching_loss(logits, own_labels) for logits in (judged.match, judged.changed_match)
    )
    return {
        "itc": contrast + CHANGED * changed,
        "itm": match + CHANGED * changed_match,
        "mlm": masked_word_loss(judged.words, targets),
    }
