"""The same metrics without LongBench's quirks (``scoring=strict``): close to the official values, not comparable.

What differs, one fix a line:

- qa_f1, qa_f1_zh: two texts that are both empty after normalisation agree (1, not 0).
- qa_f1, qa_f1_zh: all Unicode punctuation and symbols are ignored (curly quotes, dashes, 《), full-width is half-width.
- rouge: rougeL of the package rouge-score: letter case and punctuation are ignored, repeated words count, a full stop
  cuts nothing, a perfect match is exactly 1, and an exception is an error, not a 0.
- rouge_zh: the same over jieba's words without punctuation.
- classification: every label that is a proper part of the answer is taken off, also the one behind a removed one.
- count, retrieval, retrieval_zh: numbers are compared as integers ("046" and full-width digits are 46).
- code_sim: rapidfuzz's similarity is not rounded to whole percent; a blank line is no line of code; only a line that
  *starts* as a comment or a code fence is skipped, not one that holds ``#``, ``//`` or a backtick somewhere.
- first line (trec, triviaqa, samsum, lsht): leading white space is dropped, not only newlines (`eval.scoring`).
"""

import re
import unicodedata
from collections.abc import Sequence

from eval.metrics import chinese_words, english_words, optional, overlap_f1


class ChineseTokenizer:
    """rouge-score's tokenizer interface over jieba: its own drops every Chinese character."""

    def tokenize(self, text: str) -> list[str]:
        """Words in lower case, without punctuation."""
        return _chinese_words(text)


def qa_f1(prediction: str, answer: str) -> float:
    """F1 over the multisets of normalised English words; 1 if both are empty."""
    return _f1(english_words(_plain(prediction)), english_words(_plain(answer)))


def qa_f1_zh(prediction: str, answer: str) -> float:
    """F1 over the multisets of normalised Chinese words; 1 if both are empty."""
    return _f1(_chinese_words(prediction), _chinese_words(answer))


def rouge(prediction: str, answer: str) -> float:
    """ROUGE-L F of rouge-score, over its default tokens without stemming."""
    return _rouge_score(prediction, answer)


def rouge_zh(prediction: str, answer: str) -> float:
    """ROUGE-L F of rouge-score over Chinese words."""
    return _rouge_score(prediction, answer, ChineseTokenizer())


def classification(prediction: str, answer: str, all_classes: Sequence[str]) -> float:
    """1 / number of labels that the prediction names, if the answer is one of them; parts of the answer aside."""
    named = [label for label in all_classes if label in prediction and (label == answer or label not in answer)]
    return 1.0 / len(named) if answer in named else 0.0


def count(prediction: str, answer: str) -> float:
    """Share of the prediction's numbers that equal the answer.

    Raises
    ------
    ValueError
        If the answer is not a whole number.
    """
    numbers = [int(digits) for digits in re.findall(r"\d+", prediction)]
    return numbers.count(int(answer)) / len(numbers) if numbers else 0.0


def retrieval(prediction: str, answer: str) -> float:
    """`count` of the number in the answer's first "Paragraph N"; IndexError if it names none."""
    return count(prediction, re.findall(r"Paragraph (\d+)", answer)[0])


def retrieval_zh(prediction: str, answer: str) -> float:
    """`count` of the number in the answer's first "段落N"; IndexError if it names none."""
    return count(prediction, re.findall(r"段落(\d+)", answer)[0])


def code_sim(prediction: str, answer: str) -> float:
    """Indel similarity of the answer to the prediction's first line of code."""
    code = (line for line in prediction.splitlines() if line.strip() and not line.lstrip().startswith(("`", "#", "//")))
    return optional("rapidfuzz.distance").Indel.normalized_similarity(next(code, ""), answer)


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    return "".join(character for character in text if unicodedata.category(character)[0] not in "PS")


def _chinese_words(text: str) -> list[str]:
    # Cut first: punctuation is where words end.
    return [plain for word in chinese_words(text) if (plain := _plain(word))]


def _f1(predicted: Sequence[str], reference: Sequence[str]) -> float:
    return 1.0 if not predicted and not reference else overlap_f1(predicted, reference)


def _rouge_score(prediction: str, answer: str, tokenizer: ChineseTokenizer | None = None) -> float:
    scorer = optional("rouge_score.rouge_scorer").RougeScorer(["rougeL"], tokenizer=tokenizer)
    return scorer.score(answer, prediction)["rougeL"].fmeasure
