"""One row of a LongBench-format benchmark, and the benchmark that holds it.

A benchmark knows its rows, its prompt templates and its generation limits; it knows nothing of models,
tokenizers or methods. Every data source (mini, longbench, ruler, ...) returns a `Benchmark`.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """A row with the eight fields of LongBench's JSON lines (white space untouched).

    Attributes
    ----------
    id : str
        LongBench's ``_id``; where a source has none, ``<dataset>-<index>``.
    dataset : str
        Task name; LongBench-E files carry the suffix ``_e``.
    input, context : str
        The two texts that the task's template takes.
    answers : tuple of str
        Gold answers; a prediction gets the best score over them.
    all_classes : tuple of str or None
        The label set of the classification tasks.
    length : int
        Words (English, code) or characters (Chinese) as the source states it; never recomputed.
    language : str
        ``en``, ``zh`` or a programming language.
    index : int
        Position in its file, from 0: samples are ordered by it in every output.
    """

    id: str
    dataset: str
    input: str
    context: str
    answers: tuple[str, ...]
    length: int
    language: str
    all_classes: tuple[str, ...] | None = None
    index: int = 0


@dataclass(frozen=True)
class TaskPrompt:
    """How the rows of one task become a prompt, and how much may be generated.

    Attributes
    ----------
    template : str
        Format string with ``{context}`` and ``{input}``.
    max_new_tokens : int
        Generation limit in tokens.
    chat : bool
        Whether the prompt is wrapped in the model's chat template (LongBench leaves few-shot and code tasks bare).
    stop_at_newline : bool
        Stop at the first newline after at least one token (LongBench: samsum).
    """

    template: str
    max_new_tokens: int
    chat: bool
    stop_at_newline: bool = False


@dataclass(frozen=True)
class Benchmark:
    """Rows and prompts of the selected tasks.

    Attributes
    ----------
    name : str
        ``mini``, ``longbench``, ...: the folder name of its cells.
    samples : dict of str to tuple of Sample
        The selected rows by task, in file order.
    prompts : dict of str to TaskPrompt
        One a task.
    expected : dict of str to int
        Number of rows that the whole file of each task holds; tables print scored / expected.
    sources : dict of str to str
        sha256 of each task's file (or of the generated rows), for the manifest.
    notes : tuple of str
        Anything a table should say (mirror used, rows missing, ...).
    """

    name: str
    samples: dict[str, tuple[Sample, ...]]
    prompts: dict[str, TaskPrompt]
    expected: dict[str, int]
    sources: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
