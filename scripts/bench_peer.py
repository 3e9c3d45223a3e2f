"""The same cells through kvpress's pipeline and through this project, in turn, in one process; prints the ratios.

Same model, prompts, token ids, methods, ratios and number of generated tokens: the context is compressed before the
question is known, as kvpress does it. Needs kvpress (``make test-peers`` makes such an environment):
``.venv-peers/bin/python scripts/bench_peer.py``.
"""

import importlib
import os
import random
import statistics
import sys
from collections.abc import Sequence
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

import torch
from transformers import AutoModelForCausalLM, pipeline

from baselines.kvpress import press_of
from eval.arguments import Parser, whole
from eval.cells import Unit
from eval.efficiency.grids import Bench, bench, texts
from eval.efficiency.measure import timed
from eval.identity import model_options
from eval.prompts import Protocol, encode
from selkv.attention import NAME
from selkv.errors import UserError, command

# The same method on both sides; SelKV, ours on both, runs in kvpress's pipeline through `SelKVPress`.
PRESSES = {
    "streamingllm": "StreamingLLMPress(n_sink=4)",
    "snapkv": "SnapKVPress(window_size=32)",
    "pyramidkv": "PyramidKVPress(window_size=32)",
    "chunkkv": "ChunkKVPress(SnapKVPress(window_size=32), chunk_length=20)",
    "merge": "MergingPress(SnapKVPress(window_size=32))",
}
SAME = [
    f"method=[full,selkv,{','.join(PRESSES)}]",
    "methods.pyramidkv.rule=kvpress",
    "methods.chunkkv.chunk=20",
    "methods.chunkkv.kvpress_exact=true",
    "methods.merge.rule=norm",
    "methods.merge.threshold=0.0",
]


# PyramidKVPress fails where its layers differ in length and a question has several tokens (one mask for all)
EVERYWHERE = ["selkv", *(name for name in PRESSES if name != "pyramidkv")]
RATIOS = [Fraction(k, 10) for k in range(1, 10)]
ONE = Fraction(1, 4)


class Peer:
    """kvpress's pipeline on a second copy of the weights, with the attention that its users have."""

    def __init__(self, arms: Bench) -> None:
        path, options = model_options(arms.plan)
        model: Any = AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa", **options).eval()
        model.generation_config.eos_token_id = None  # both sides decode all tokens
        self.arms, self.worker = arms.plan.arms, arms.worker
        importlib.import_module("kvpress")  # transformers knows its pipeline then
        self.pipe = pipeline("kv-press-text-generation", model=model, tokenizer=arms.worker.tokenizer)

    def answer(self, unit: Unit, index: int) -> str:
        """One cell: kvpress's own prefill, compression and decoding of the ids that our side gets, too."""
        arm, prompt = self.arms[index], encode(unit.sample, unit.prompt, self.worker.tokenizer, self.protocol)
        context, question = torch.tensor([prompt.ids]).split([prompt.context, len(prompt.ids) - prompt.context], 1)
        self.pipe.model.set_attn_implementation(NAME if arm.method == "selkv" else "sdpa")
        (text,) = self.pipe.forward(
            {"context_ids": context, "questions_ids": [question]},
            press=press(arm.method, arm.ratio),
            max_new_tokens=unit.prompt.max_new_tokens,
        )
        return text

    @property
    def protocol(self) -> Protocol:
        """How prompts become ids."""
        return self.worker.settings.protocol


def press(method: str, ratio: Fraction) -> Any:
    """The press of a method; None for the full cache."""
    if method == "full":
        return None
    if method == "selkv":
        from selkv.kvpress import SelKVPress  # needs kvpress, which --help does not

        return SelKVPress(float(1 - ratio))
    return press_of(PRESSES[method], ratio)


def compare(name: str, peer: Peer, arms: Sequence[int], units: Sequence[Unit], repeats: int, cells: int | None) -> None:
    """Both sides in turn; of the peer's cells a random subset, another each time, scaled, where `cells` says so."""
    worker, device = peer.worker, peer.worker.model.device
    every = [(unit, arm) for unit in units for arm in arms]
    ratios, sent, equal = [], 0, 0
    for repeat in range(repeats):
        chosen = random.Random(repeat).sample(every, min(cells or len(every), len(every)))
        ours, found = timed(lambda: {unit.dataset: texts(worker, unit, arms) for unit in units}, device)
        theirs, answers = timed(lambda chosen=chosen: [peer.answer(*cell) for cell in chosen], device)
        ratios.append(theirs * len(every) / len(chosen) / ours)
        own = [worker.tokenizer.decode(found[u.dataset][arm], skip_special_tokens=True) for u, arm in chosen]
        sent, equal = sent + len(own), equal + sum(a == b for a, b in zip(own, answers, strict=True))
        print(f"  kvpress {theirs:.1f} s for {len(chosen)} cells, ours {ours:.1f} s for {len(every)}", flush=True)
    print(
        f"{name}: kvpress over ours, median of {repeats}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
        f"{max(ratios):.2f}); {equal} of {sent} texts equal; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def options_of(arguments: Sequence[str]) -> Any:
    """Read the command line."""
    parser = Parser("bench_peer", str(__doc__))
    parser.add_argument("override", nargs="*", help="options of run.py: model=... and so on")
    parser.add_argument("--tokens", type=whole(1), default=2000, help="length of the prompts (default: %(default)s)")
    parser.add_argument("--new-tokens", type=whole(1), default=32, help="tokens to decode (default: %(default)s)")
    parser.add_argument("--repeats", type=whole(1), default=7, help="alternating repeats of (a) (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=whole(1), default=3, help="alternating repeats of (b) and (c) (default: %(default)s)"
    )
    parser.add_argument(
        "--cells", type=whole(1), help="cells of (c) to send through kvpress, drawn at random (default: all)"
    )
    options = parser.parse_args(arguments)
    if find_spec("kvpress") is None:
        raise UserError("kvpress is not installed here; make test-peers makes .venv-peers, whose Python has it")
    return options


@command
def main(arguments: list[str]) -> int:
    options = options_of(arguments)
    ratios = f"ratio=[{','.join(map(str, [*map(float, RATIOS), float(ONE)]))}]"
    arms = bench([*SAME, ratios, *options.override], options.tokens, options.new_tokens, compress="context")
    peer, unit = Peer(arms), arms.units[0]

    def rows(methods: Sequence[str], ratios: Sequence[Fraction]) -> list[int]:
        wanted = {(name, ratio) for name in methods for ratio in ([Fraction(1)] if name == "full" else ratios)}
        return [i for i, arm in enumerate(arms.plan.arms) if (arm.method, arm.ratio) in wanted]

    texts(arms.worker, unit, [0])  # warm-up of both sides
    peer.answer(unit, 0)
    compare("(a) snapkv at 0.25", peer, rows(["snapkv"], [ONE]), [unit], options.repeats, None)
    compare("(b) 7 methods at 0.25", peer, rows(["full", "selkv", *PRESSES], [ONE]), [unit], options.rounds, None)
    compare("(c) 5 methods at 9 ratios", peer, rows(EVERYWHERE, RATIOS), [unit], options.rounds, options.cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
