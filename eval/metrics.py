"""LongBench's metrics with the official values: one function a metric, text in, a score in [0, 1] out.

Source of the rules: THUDM/LongBench, commit 2e00731f (metrics.py), with its quirks. The one deliberate difference:
no value depends on Python's recursion limit or on which optional package happens to be installed.
`eval.tasks` names these functions; `eval.metrics_strict` holds their namesakes without the quirks. `contains` and
`choice` are those of the other benchmarks.
"""

import difflib
import importlib
import logging
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType

from eval.rouge import rouge_l
from selkv.errors import UserError

# Punctuation that multifieldqa_zh ignores besides ASCII: the code points of the official list.
CHINESE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『"
    "』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏"
)
DELETE_ASCII = str.maketrans("", "", string.punctuation)
DELETE_CHINESE = str.maketrans("", "", string.punctuation + CHINESE_PUNCTUATION)


def qa_f1(prediction: str, answer: str) -> float:
    """F1 over the multisets of words, after dropping case, ASCII punctuation and the articles; 0 if both are empty."""
    return overlap_f1(english_words(prediction), english_words(answer))


def qa_f1_zh(prediction: str, answer: str) -> float:
    """F1 over the multisets of jieba's words, after dropping case, punctuation and white space."""
    return overlap_f1(chinese_words(prediction), chinese_words(answer))


def rouge(prediction: str, answer: str) -> float:
    """ROUGE-L F of the package ``rouge`` 1.0.1 (see `eval.rouge`); 0.0 for a text without words."""
    return rouge_l(prediction, answer)


def rouge_zh(prediction: str, answer: str) -> float:
    """`rouge` over jieba's words."""
    return rouge_l(" ".join(jieba_words(prediction)), " ".join(jieba_words(answer)))


def classification(prediction: str, answer: str, all_classes: Sequence[str]) -> float:
    """1 / number of labels that the prediction names, if the answer is one of them (case-sensitive).

    Labels that are a proper part of the answer are taken off the list *while it is walked*, so the label behind one
    that was removed is never looked at: "abcd" with the labels a, b, c, d, abcd scores 1/3.

    Raises
    ------
    TypeError
        If `all_classes` is None.
    """
    named = [label for label in all_classes if label in prediction]
    for label in named:
        if label in answer and label != answer:
            named.remove(label)
    return 1.0 / len(named) if answer in named else 0.0


def count(prediction: str, answer: str) -> float:
    """Share of the prediction's runs of digits that equal the answer as text ("046" is not "46")."""
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(str(answer)) / len(numbers) if numbers else 0.0


def retrieval(prediction: str, answer: str) -> float:
    """`count` of the number in the answer's first "Paragraph N".

    Raises
    ------
    IndexError
        If the answer names no paragraph.
    """
    return count(prediction, re.findall(r"Paragraph (\d+)", answer)[0])


def retrieval_zh(prediction: str, answer: str) -> float:
    """`count` of the number in the answer's first "段落N".

    Raises
    ------
    IndexError
        If the answer names no paragraph.
    """
    return count(prediction, re.findall(r"段落(\d+)", answer)[0])


def difflib_percent(a: str, b: str) -> int:
    """Similarity in whole percent as fuzzywuzzy gives it when python-Levenshtein is not installed."""
    if a == b:
        return 100
    if not a or not b:
        return 0
    return round(100 * difflib.SequenceMatcher(None, a, b).ratio())


def levenshtein_percent(a: str, b: str) -> int:
    """Similarity in whole percent as fuzzywuzzy gives it with python-Levenshtein (indel distance)."""
    if not a or not b:
        return 100 if a == b else 0
    return round(100 * optional("rapidfuzz.distance").Indel.normalized_similarity(a, b))


def code_sim(prediction: str, answer: str, percent: Callable[[str, str], int] = difflib_percent) -> float:
    """Similarity of the answer to the prediction's first line that holds no backtick, ``#`` or ``//``.

    Parameters
    ----------
    prediction, answer : str
        Newlines in front of the prediction are dropped; white space counts; no such line is the empty text.
    percent : callable
        `difflib_percent` or `levenshtein_percent`; they differ by 1 to 3 points a dataset.
    """
    lines = prediction.lstrip("\n").split("\n")
    code = (line for line in lines if not any(mark in line for mark in ("`", "#", "//")))
    return percent(next(code, ""), answer) / 100


def contains(prediction: str, answer: str) -> float:
    """1 if the answer stands in the prediction, case ignored: RULER's string match (arXiv 2404.06654)."""
    return float(answer.lower() in prediction.lower())


def choice(prediction: str, answer: str) -> float:
    """1 if the letter that the prediction chooses is the answer (LongBench v2, arXiv 2412.15204).

    The letter behind "answer is" or "answer:", else the one that the text opens with, else the first in brackets.
    Asterisks are dropped first, as the official scorer does.
    """
    text = prediction.replace("*", "")
    found = next((match for rule in _CHOSEN if (match := rule.search(text))), None)
    return float(found is not None and found[1] == answer)


_CHOSEN = (
    re.compile(r"(?i:answer(?:\s+is)?)\s*:?\s*\(?([A-D])\b(?!\s+[a-z])"),
    re.compile(r"^\W*([A-D])\b(?!\s+[a-z])"),
    re.compile(r"\(([A-D])\)"),
)


def overlap_f1(predicted: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of two multisets of words; 0.0 without a common word."""
    common = sum((Counter(predicted) & Counter(reference)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(reference)
    return (2 * precision * recall) / (precision + recall)


def english_words(text: str) -> list[str]:
    """Lower-case words without ASCII punctuation (joined: "it's" is "its") and without a, an, the."""
    return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(DELETE_ASCII)).split()


def chinese_words(text: str) -> list[str]:
    """Words of jieba in lower case, without punctuation and white space."""
    words = ("".join(word.lower().translate(DELETE_CHINESE).split()) for word in jieba_words(text))
    return [word for word in words if word]


def jieba_words(text: str) -> list[str]:
    """Cut a text into words with jieba, in its default mode."""
    jieba = optional("jieba")
    jieba.setLogLevel(logging.WARNING)  # else it reports on stderr that it builds its dictionary
    return jieba.lcut(text)


def optional(name: str) -> ModuleType:
    """Import a package that only some metrics need.

    Raises
    ------
    UserError
        With the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0].replace("_", "-")
        raise UserError(f"this metric needs the package {package!r}; install it: pip install {package}") from error
