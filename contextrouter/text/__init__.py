"""Words of questions and documents: analysis, stop words, stemming, query syntax, BM25, token counts, prompt
injection.
"""
