"""The learners' files are data: the grader reads them, pytest never imports them."""

collect_ignore_glob = ["wrong/*", "right/*", "hostile/*"]
