"""How people write and speak: words, stems, sentences, forms of questions, and word lists."""
