"""Natural language: words, stems, sentences, forms of questions and word lists."""
