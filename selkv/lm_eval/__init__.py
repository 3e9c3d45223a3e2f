"""SelKV and every other method in lm-evaluation-harness: ``python -m selkv.lm_eval`` (extra ``selkv[lm-eval]``)."""
