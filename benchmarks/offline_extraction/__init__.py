"""An offline extractor under trial: claims of a session, ranked by a learned judge. Not part of the product."""
