"""Embeddings, index, sync and retrieval."""

PROMISES = {
    "EMB-OFFLINE": "The bundled model embeds without any download, normalised, in 384 dimensions.",
    "EMB-REPEATABLE": "A text has the same vector alone and among others, so rebuilds are reproducible.",
    "EMB-FASTEMBED-EQUAL": "The bundled model's vectors are those that fastembed gives for the same folder.",
    "EMB-VERIFIED": "A model file that is not the expected one is never used.",
    "EMB-FALLBACK": "Where the model cannot be converted, the shipped file serves.",
    "EMB-FOLDER": "A local folder with a model can be configured.",
    "EMB-NAMED": "A fastembed model that cannot be had gives one clear sentence, not a traceback.",
    "EMB-HTTP": "OpenAI- and Voyage-compatible endpoints work, with retries, validation and redaction.",
}
