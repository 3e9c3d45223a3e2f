"""The page that ``--help`` prints, put together from the YAML files; imports no Hydra, no torch."""

import re

from eval.choices import choices, configs, describe

EXAMPLES = """\
  python run.py                                          four methods, built-in data, small real model, CPU, offline
  python run.py method=selkv ratio=0.25 model=llama31    one method on LongBench, the full cache beside it
  python run.py 'method=[full,selkv,snapkv]' 'ratio=[0.1,0.25,0.5]' model=gemma2
  python run.py experiment=table1 model=llama31          a table of the paper
  python run.py -m model=llama31,gemma2 experiment=table1      several runs, one after another
  python run.py 'method=[selkv]' 'grid.selkv.alpha=[0,0.5,1]'  a labelled row per value
  python run.py methods.selkv.bucket=16                  one hyperparameter
  python run.py experiment=ablation dry_run=true         what would be done, and how long it takes
  python run.py --config-dir mine method=valuenorm       with a folder of your own configs: mine/method/valuenorm.yaml
  python run.py --cfg job                                the whole resolved config"""

SECTIONS = (
    ("method", "Methods (method=NAME or method=[A,B]; hyperparameters: methods.NAME.KEY=VALUE)"),
    ("model", "Models (model=NAME; model=hf model.path=... for any other)"),
    ("data", "Data (data=NAME; data.tasks=[...] takes names, categories, english or all)"),
    ("experiment", "Experiments (experiment=NAME)"),
    ("engine", "Engines (engine=NAME)"),
    ("protocol", "Protocols (protocol=NAME): how text is generated"),
    ("prefill", "Prefill (prefill=NAME, prefill.chunk=N)"),
)


def page() -> str:
    """Text of the help page."""
    parts = [
        "Compress the KV cache of a language model with several methods at once, and see what it costs.",
        f"Usage: python run.py [key=value ...]      (the same as: selkv run [key=value ...])\n\n{EXAMPLES}",
        "Running the same command again computes only what is missing. Results lie in results/<name>/<model>/.",
        *(_section(group, title) for group, title in SECTIONS),
        f"Options (key=value) and their defaults\n{_options()}",
    ]
    return "\n\n".join(parts)


def _section(group: str, title: str) -> str:
    names = choices(group)
    width = max(map(len, names), default=0)
    return "\n".join([title, *(f"  {name:{width}}  {describe(group, name)}".rstrip() for name in names)])


def _options() -> str:
    """The top-level options of config.yaml, each with the comment that stands beside it."""
    text = (configs() / "config.yaml").read_text(encoding="utf-8").partition("\nhydra:")[0]
    options = re.findall(r"^(\w+): *(.*?) *# (.*)$", text, flags=re.MULTILINE)
    return "\n".join(f"  {f'{key}={value}':24}  {comment}" for key, value, comment in options)
