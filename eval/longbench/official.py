"""What we may keep of the official LongBench: where its files lie, and the sha256 of its prompt templates.

Source: THUDM/LongBench (MIT), `LongBench/config/dataset2prompt.json` at `COMMIT`; sha256 of each
template's UTF-8 bytes.
"""

COMMIT = "2e00731f8d0bff23dc4325161044d0ed8af94c1e"
TEMPLATES_URL = f"https://raw.githubusercontent.com/THUDM/LongBench/{COMMIT}/LongBench/config/dataset2prompt.json"

# The data set's owner was renamed; both names are tried, in this order.
HUB_IDS = ("zai-org/LongBench", "THUDM/LongBench")

TEMPLATE_SHA256 = {
    "2wikimqa": "9ec4ae308865bd0c62af20b3dc7b12b31f2b447f55684bd88c1aa40f2f636deb",
    "dureader": "ae53329f51b17908e08b8c6bf366987282b8b38c0ee35275ebd7b79e9b30eff2",
    "gov_report": "91c25d585b189ced91c9280efcb4ecb5dcff9548cd4e3bfae66c68025b569e95",
    "hotpotqa": "9ec4ae308865bd0c62af20b3dc7b12b31f2b447f55684bd88c1aa40f2f636deb",
    "lcc": "6a1f24cf0bb83cd90f1fca8f0dd24801626c2aaea29db834ddc83b950e71190e",
    "lsht": "f3edabdf7fae53d6cadfa7a10f3574d114302161c46dacecd5d30763204bbbf3",
    "multi_news": "2af3f28c40b902e6535d4910510d51653613c49de9b2fc287c5958395061101d",
    "multifieldqa_en": "20b4666a2de8a1f701bdb6c4e015fa9f8758d64b361d841f7766df6c9ceba770",
    "multifieldqa_zh": "344b3a4e557cd5470c661b3d6b374339717e1257a6c01f628d22322d4a554b94",
    "musique": "9ec4ae308865bd0c62af20b3dc7b12b31f2b447f55684bd88c1aa40f2f636deb",
    "narrativeqa": "aada7ed24b06abace5b0045ac3bcfe06fc831a6cf434f0ecfd99fb7b3d299e1c",
    "passage_count": "986550b6c61009c629a4535766d94b7b51e2b2b9e1ed169e4ecb54417466e964",
    "passage_retrieval_en": "39b96b7fa52bdd2aa2bde34ea199158505201b9a0a2c3ce94e80249293f60431",
    "passage_retrieval_zh": "c1e2346e245eb365bc33a1503cde2e473948a2aad51c3e4c72893e61ab074d60",
    "qasper": "0fbdd123fe7f83d6d6a9c583ca28cb29d68e523bf8fec01a0cf2dcd11037775d",
    "qmsum": "dca23b678fe0183bbd9555b57947022aed1b85739da5ad7e1b4708dd0c71c409",
    "repobench-p": "ee9ec182ea5ffeb70a7140d55baea97264a8612d88226d323afa90859c36240c",
    "samsum": "a68d884234907eefcaa0eacf7b2997f60fa46603988dceae6a44f9b49f045b3f",
    "trec": "0eff8bebdba99d91e9d7d91b6ab39455ac74648bea92c9255c9f68c62175b2db",
    "triviaqa": "00a802e6377e72fca39b169cf6c28893bedf23ba7286b03ecd15867c3e27a7c4",
    "vcsum": "3e5d8241bc9b512eb4929c1ba80882a44f50b446bc2b1d9d79eff030dd10dc27",
}
