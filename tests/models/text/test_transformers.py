import json
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from nobackfill.core.config import Choice, resolve_options, to_toml
from nobackfill.core.config.schema import Recipe
from nobackfill.errors import ConfigError, DataError
from nobackfill.models.base import optional_package
from nobackfill.models.text.bag_of_words import TEXT_ENCODERS, TEXT_RESOLVERS
from nobackfill.models.text.transformers import transformers_text

if find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)
transformers = optional_package("transformers", extra="transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["a", "red", "coat", "dog", "runs", "the", "on", "beach"]
TEXTS = ["a red coat", "the dog runs on the beach", "dog"]
IDS = ["a.jpg#0", "a.jpg#1", "b.jpg#0"]
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 10,
}  # fmt: skip
VISION = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
BERT = SMALL | {"vocab_size": 12, "pad_token_id": 0}
CLIP = SMALL | {"vocab_size": 12, "bos_token_id": 1, "eos_token_id": 3, "pad_token_id": 0}


def save_tokenizer(folder, words=WORDS, *, start="[CLS]", end="[SEP]", **options):
    """A tokenizer of whole words: 0 fills up, 1 starts, 2 is unknown, 3 ends, then the words."""
    vocabulary = {word: number for number, word in enumerate(["[PAD]", start, "?", end, *words])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(start, 1), (end, 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="?", **options
    ).save_pretrained(folder)
    return str(folder)


def save_model(model, folder):
    transformers.utils.logging.disable_progress_bar()
    model.eval().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def bert(tmp_path):
    """A small BERT with its pooler, and its folder with a tokenizer."""
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**BERT))
    folder = save_model(model, tmp_path / "bert")
    save_tokenizer(folder, cls_token="[CLS]", sep_token="[SEP]")
    return model, folder


@pytest.fixture
def clip(tmp_path):
    """A small CLIP of both parts, with a projection narrower than either, and its folder."""
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=CLIP, vision_config=VISION, projection_dim=6)
    model = transformers.CLIPModel(config)
    folder = save_model(model, tmp_path / "clip")
    save_tokenizer(folder, bos_token="[CLS]", eos_token="[SEP]")
    return model, folder


@pytest.fixture
def siglip(tmp_path):
    """A small SigLIP of both parts, with a tokenizer that gives no mask, and its folder."""
    torch.manual_seed(0)
    text = SMALL | {"vocab_size": 12, "projection_size": 6}
    model = transformers.SiglipModel(
        transformers.SiglipConfig(text_config=text, vision_config=VISION)
    )
    folder = save_model(model, tmp_path / "siglip")
    save_tokenizer(folder, eos_token="[SEP]", model_input_names=["input_ids"])
    return model, folder


def features(encoder):
    return encoder.eval()(encoder.prepare(TEXTS, IDS))


def tokens_of(text):
    return [1, *(4 + WORDS.index(word) for word in text.split()), 3]


# What comes out.


def test_tokens_are_filled_up_to_the_longest_and_masked(bert):
    prepared = transformers_text(path=bert[1]).prepare(TEXTS, IDS)
    assert prepared.dtype == torch.int64
    assert prepared.shape == (3, 2, 8)
    for row, text in zip(prepared, TEXTS, strict=True):
        tokens = tokens_of(text)
        assert row[0].tolist() == tokens + [0] * (8 - len(tokens))
        assert row[1].tolist() == [1] * len(tokens) + [0] * (8 - len(tokens))


def test_what_each_way_of_pooling_takes_one_text_at_a_time(bert):
    """Without anything filled up: the mean is one over tokens, as a loop."""
    model, path = bert
    for pool in ("model", "mean", "first"):
        found = features(transformers_text(path=path, pool=pool))
        for row, text in zip(found, TEXTS, strict=True):
            output = model(input_ids=torch.tensor([tokens_of(text)]))
            states = output.last_hidden_state[0]
            total = torch.zeros(16)
            for state in states:
                total += state
            expected = {
                "model": output.pooler_output[0],
                "mean": total / len(states),
                "first": states[0],
            }
            torch.testing.assert_close(row, expected[pool])


def test_the_stranger_agrees_about_the_mean(bert):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    modules = sentence_transformers.sentence_transformer.modules
    transformer = modules.Transformer(bert[1])
    stranger = sentence_transformers.SentenceTransformer(
        modules=[transformer, modules.Pooling(16, pooling_mode="mean")], device="cpu"
    )
    expected = stranger.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False)
    found = features(transformers_text(path=bert[1], pool="mean"))
    torch.testing.assert_close(found, expected)


def test_without_a_pooler_it_is_the_mean(tmp_path):
    config = transformers.DistilBertConfig(
        vocab_size=12, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=10
    )
    path = save_model(transformers.DistilBertModel(config), tmp_path / "distil")
    save_tokenizer(path)
    own, mean = (features(transformers_text(path=path, pool=pool)) for pool in ("model", "mean"))
    torch.testing.assert_close(own, mean)


def test_clip_as_transformers_gives_it(clip):
    model, path = clip
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    inputs = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    projected = transformers_text(path=path, pool="projected")
    assert projected.feature_dim == 6
    whole = transformers.CLIPTextModelWithProjection.from_pretrained(path, projection_dim=6).eval()
    torch.testing.assert_close(features(projected), whole(**inputs).text_embeds)
    pooled = transformers_text(path=path)
    assert pooled.feature_dim == 16
    torch.testing.assert_close(features(pooled), model.text_model(**inputs).pooler_output)
    assert not any("vision" in name for name, _ in projected.named_parameters())


def test_siglip_is_filled_up_to_all_its_places(siglip):
    model, path = siglip
    encoder = transformers_text(path=path)
    prepared = encoder.prepare(TEXTS, IDS)
    assert prepared.shape == (3, 2, 10)
    assert (prepared[:, 1] == 1).all()
    expected = model.text_model(input_ids=prepared[:, 0]).pooler_output
    torch.testing.assert_close(encoder.eval()(prepared), expected)
    assert encoder.feature_dim == 6
    assert not any("vision" in name for name, _ in encoder.named_parameters())


@pytest.mark.parametrize(
    ("architecture", "settings", "places"),
    [
        ("BertConfig", BERT, 10),
        ("RobertaConfig", BERT, 9),  # none below that of the filling token
        ("CLIPTextConfig", CLIP, 10),
        ("SiglipTextConfig", SMALL | {"vocab_size": 12}, 10),
        ("ModernBertConfig", CLIP | {"cls_token_id": 1, "sep_token_id": 3}, 10),
    ],
)
@pytest.mark.parametrize("pool", ["model", "mean", "first"])
def test_every_place_is_filled_and_no_more(tmp_path, architecture, settings, places, pool):
    ends = {"eos_token": "[SEP]"} if "eos_token_id" in settings else {}
    folder = save_tokenizer(tmp_path / "words", **ends)
    encoder = transformers_text(
        architecture=architecture,
        settings=tuple(f"{key}={value}" for key, value in settings.items()),
        tokenizer=folder,
        pool=pool,
    ).eval()
    full = " ".join(["dog"] * (places - 2))
    prepared = encoder.prepare([full, "dog"], ["full", "b"])
    assert prepared.shape == (2, 2, places)
    assert encoder(prepared).isfinite().all()
    with pytest.raises(
        DataError,
        match=rf"at most {places} tokens, but 1 of 2 .* 'longer' with {places + 1}\. .*`too_long = "
        '"cut"`',
    ):
        encoder.prepare(["dog", f"{full} dog"], ["b", "longer"])


def test_a_long_text_is_cut_only_if_asked(bert):
    long = "the dog runs on the beach " * 3
    cut = transformers_text(path=bert[1], too_long="cut").prepare([long], ["x"])
    assert cut[0, 0].tolist() == [*tokens_of(long)[:9], 3]
    with pytest.raises(DataError, match="'x' with 20"):
        transformers_text(path=bert[1]).prepare([long], ["x"])
    asked = transformers_text(path=bert[1], longest=4)
    assert asked.prepare(["red dog"], ["x"]).shape == (1, 2, 4)
    with pytest.raises(DataError, match="at most 4 tokens, .* 'x' with 5"):
        asked.prepare(["red dog runs"], ["x"])


def test_a_longer_limit_than_the_model_has(bert):
    for longest in (0, 11):
        with pytest.raises(ConfigError, match=f"between 1 and 10, .* but it is {longest}"):
            transformers_text(path=bert[1], longest=longest)


# Learning.


@pytest.mark.parametrize("pool", ["model", "mean", "first"])
@pytest.mark.parametrize("kind", ["bert", "siglip", "clip"])
def test_every_weight_that_may_learn_does(kind, pool, request):
    encoder = transformers_text(path=request.getfixturevalue(kind)[1], pool=pool).train()
    encoder(encoder.prepare(TEXTS, IDS)).square().sum().backward()
    idle = [name for name, p in encoder.named_parameters() if p.requires_grad and p.grad is None]
    assert not idle


def test_a_frozen_model_stays_as_it_is(bert):
    encoder = transformers_text(path=bert[1], pool="mean", frozen=True)
    prepared = encoder.prepare(TEXTS, IDS)
    free = transformers_text(path=bert[1], pool="mean")
    expected = free.eval()(prepared)
    assert expected.requires_grad
    assert not torch.equal(free.train()(prepared), expected)  # dropout
    for mode in (True, False):
        found = encoder.train(mode)(prepared)
        assert not found.requires_grad
        assert torch.equal(found, expected)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


# Texts that cannot be read.


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_a_blank_text_is_named(bert, blank):
    with pytest.raises(DataError, match=r"1 of 2 texts are empty or blank; the first is 'a.jpg#1'"):
        transformers_text(path=bert[1]).prepare(["dog", blank], IDS[:2])


def test_a_text_of_which_the_tokenizer_leaves_nothing(bert):
    with pytest.raises(DataError, match=r"tokenizer finds no words in 'a.jpg#1'"):
        transformers_text(path=bert[1]).prepare(["dog", "\u200b"], IDS[:2])


def test_no_text_at_all(bert):
    assert transformers_text(path=bert[1]).prepare([], []).shape[:2] == (0, 2)


# Tokenizers that are not the model's.


def test_a_folder_without_tokenizer(bert):
    for file in Path(bert[1]).glob("tokenizer*"):
        file.unlink()
    with pytest.raises(DataError, match="No tokenizer in .*bert: it has none of"):
        transformers_text(path=bert[1])


def test_a_tokenizer_that_cannot_be_read(bert):
    (Path(bert[1]) / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="transformers .* cannot read the tokenizer in"):
        transformers_text(path=bert[1])


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_more_tokens_than_the_model_has_embeddings(tmp_path, more, fits):
    folder = save_tokenizer(tmp_path / "words", [*WORDS, *["extra"][:more]])
    options = {
        "architecture": "BertConfig",
        "settings": tuple(f"{key}={value}" for key, value in BERT.items()),
        "tokenizer": folder,
    }
    if fits:
        assert features(transformers_text(**options)).shape == (3, 16)
    else:
        with pytest.raises(ConfigError, match="up to number 12, .* for 12, up to 11"):
            transformers_text(**options)


def test_another_number_for_a_special_token(bert):
    config = Path(bert[1]) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"pad_token_id": 5}))
    with pytest.raises(ConfigError, match=r"its pad_token_id is 0, .* BertConfig is 5.*`settings`"):
        transformers_text(path=bert[1])
    transformers_text(path=bert[1], settings=("pad_token_id=0",))


def test_clip_wants_a_tokenizer_that_ends_texts_where_it_looks(clip, tmp_path):
    model, path = clip
    with pytest.raises(ConfigError, match=r"its eos_token_id is 3, .* CLIPTextConfig is 7"):
        transformers_text(path=path, settings=("eos_token_id=7",))
    path = save_model(model, tmp_path / "weights alone")
    endless = save_tokenizer(tmp_path / "endless", cls_token="[CLS]", sep_token="[SEP]")
    with pytest.raises(ConfigError, match=r"its eos_token_id is None, .* CLIPTextConfig is 3"):
        transformers_text(path=path, tokenizer=endless)


def test_clip_as_it_was_published_names_its_tokens_wrongly(clip):
    """Its file has 0, 2 and 1 for tokens that its tokenizer numbers 49406, 49407 and 49407."""
    old = ("bos_token_id=0", "eos_token_id=2", "pad_token_id=1")
    features(transformers_text(path=clip[1], settings=old))


def test_another_tokenizer_than_the_one_in_the_models_folder(bert, tmp_path):
    same = save_tokenizer(tmp_path / "same", cls_token="[CLS]", sep_token="[SEP]")
    transformers_text(path=bert[1], tokenizer=same)
    other = save_tokenizer(tmp_path / "other", WORDS[::-1])
    with pytest.raises(
        ConfigError, match=r"tokenizer in .*other is not the model's, which is in .*bert"
    ):
        transformers_text(path=bert[1], tokenizer=other)


def test_a_tokenizer_that_keeps_upper_case_is_another(bert, tmp_path):
    words = [*WORDS[:-1], "dogs"]  # which stands in upper case in the probe
    save_tokenizer(bert[1], words)
    keeps = save_tokenizer(tmp_path / "keeps", words)
    transformers_text(path=bert[1], tokenizer=keeps)
    file = Path(keeps) / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"normalizer": None}))
    with pytest.raises(ConfigError, match="numbers words in another way"):
        transformers_text(path=bert[1], tokenizer=keeps)


# Options.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ConfigError, r"\[text\] has neither `path` .* nor `architecture` .*BertConfig\)"),
        ({"architecture": "BertConfig"}, ConfigError, r"\[text\] has neither `tokenizer`"),
        ({"architecture": "BertConfg", "tokenizer": "x"}, ConfigError, "Did you mean `BertConfig`"),
        ({"architecture": "ViTConfig", "tokenizer": "x"}, ConfigError, "knows no words"),
        ({"architecture": "T5Config", "tokenizer": "x"}, ConfigError, "writes them"),
        ({"architecture": "BertConfig", "tokenizer": "x"}, DataError, "No tokenizer in x"),
        ({"path": "no/such/folder"}, DataError, "has no config.json"),
    ],
)
def test_options_that_make_no_encoder(options, error, message):
    with pytest.raises(error, match=message):
        transformers_text(**options)


def test_with_an_architecture_the_folder_may_come_later(bert):
    make, resolve = TEXT_ENCODERS["transformers"], TEXT_RESOLVERS["transformers"]
    folder = Path(bert[1])
    settings = [f"{name}={value}" for name, value in BERT.items()]
    given = {"path": str(folder), "architecture": "BertConfig", "settings": settings}
    options = resolve_options(make, given, where="text")
    folder.rename(folder.with_name("elsewhere"))
    planned = resolve(options)
    assert planned == options | {"tokenizer": str(folder)}
    with pytest.raises(DataError, match=f"No tokenizer in {folder}: it has none"):
        make(**planned)
    with pytest.raises(DataError, match=f"{folder} has no config.json"):
        resolve(options | {"architecture": None})  # nothing else says what it will be
    folder.with_name("elsewhere").rename(folder)
    found = resolve(planned)
    assert found["vocabulary"] is not None
    assert torch.equal(features(make(**planned)), features(make(**found)))


def test_weights_that_do_not_fit(bert):
    with pytest.raises(
        DataError, match=r" missing \(16\): .*, and 11 more.* Remove `settings` from \[text\]"
    ):
        transformers_text(path=bert[1], settings=("num_hidden_layers=3",))
    with pytest.raises(DataError, match=r" left over \(16\): "):
        transformers_text(path=bert[1], settings=("num_hidden_layers=1",))


@pytest.mark.parametrize("pool", ["model", "projected"])
@pytest.mark.parametrize(("layers", "message"), [(1, "left over"), (3, "missing")])
def test_layers_of_the_part_for_texts_that_do_not_fit(clip, pool, layers, message):
    with pytest.raises(DataError, match=rf" {message} \(16\): "):
        transformers_text(path=clip[1], pool=pool, settings=(f"num_hidden_layers={layers}",))


def test_no_projection(bert, tmp_path):
    with pytest.raises(ConfigError, match=r'no BertModelWithProjection.*`pool = "model"`'):
        transformers_text(path=bert[1], pool="projected")
    alone = transformers.CLIPTextModel(transformers.CLIPTextConfig(**CLIP))
    path = save_model(alone, tmp_path / "alone")
    save_tokenizer(path, eos_token="[SEP]")
    with pytest.raises(DataError, match=r'weights of the projection\..*`pool = "model"` in \[text'):
        transformers_text(path=path, pool="projected")
    transformers_text(path=path)


def test_no_pooler(bert, tmp_path):
    path = save_model(
        transformers.BertModel(transformers.BertConfig(**BERT), add_pooling_layer=False),
        tmp_path / "bare",
    )
    with pytest.raises(DataError, match=r'`pool = "mean"` in \[text\]'):
        transformers_text(path=path, tokenizer=bert[1])
    transformers_text(path=path, tokenizer=bert[1], pool="mean")


# A run.


@pytest.mark.parametrize("kind", ["bert", "clip", "siglip"])
def test_a_run_is_built_again_when_the_weights_are_gone(kind, request):
    _, path = request.getfixturevalue(kind)
    make, resolve = TEXT_ENCODERS["transformers"], TEXT_RESOLVERS["transformers"]
    options = resolve(resolve_options(make, {"path": path}, where="text"))
    trained = make(**options)
    expected = features(trained)
    (Path(path) / "model.safetensors").unlink()
    (Path(path) / "config.json").unlink()

    text = to_toml(Recipe(model=Choice("transformers", options)))
    table = tomllib.loads(text)["model"]
    table.pop("name")
    again = resolve(resolve_options(make, table, where="text"))
    assert again == options
    bare = make(**again | {"path": None})
    bare.load_state_dict(trained.state_dict())
    assert torch.equal(features(bare), expected)

    save_tokenizer(path, WORDS[::-1])
    with pytest.raises(
        DataError, match=f"tokenizer in {path} is .* made with {options['vocabulary']}"
    ):
        bare.prepare(TEXTS, IDS)
    shutil.rmtree(path)
    with pytest.raises(DataError, match=f"No tokenizer in {path}: it has none"):
        bare.prepare(TEXTS, IDS)


def test_loading_says_nothing(bert, capfd):
    encoder = transformers_text(path=bert[1])
    encoder.prepare(TEXTS, IDS)
    assert capfd.readouterr() == ("", "")
