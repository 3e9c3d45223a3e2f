"""RULER's tasks as facts: category, generation limit, string match.

Source: Hsieh et al. 2024, arXiv 2404.06654, and the settings of its 13 tasks; its two question answering tasks need
SQuAD and HotpotQA and are not here. 500 rows a task and length. Bare prompts that end with the opening of the answer.
"""

from eval.tasks import Task

RETRIEVAL, TRACING, AGGREGATION = "Retrieval", "Multi-hop Tracing", "Aggregation"


def _task(name: str, short: str, category: str, limit: int) -> Task:
    return Task(name, category, "contains", "en", limit, chat=False, rows=500, mean=True, short=short)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task("niah_single_1", "S1", RETRIEVAL, 128),
        _task("niah_single_2", "S2", RETRIEVAL, 128),
        _task("niah_single_3", "S3", RETRIEVAL, 128),
        _task("niah_multikey_1", "MK1", RETRIEVAL, 128),
        _task("niah_multikey_2", "MK2", RETRIEVAL, 128),
        _task("niah_multikey_3", "MK3", RETRIEVAL, 128),
        _task("niah_multivalue", "MV", RETRIEVAL, 128),
        _task("niah_multiquery", "MQ", RETRIEVAL, 128),
        _task("vt", "VT", TRACING, 30),
        _task("cwe", "CWE", AGGREGATION, 120),
        _task("fwe", "FWE", AGGREGATION, 50),
    )
}
