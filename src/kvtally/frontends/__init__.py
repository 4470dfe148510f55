"""WHERE PEOPLE COME IN. Thin: parse, call one function, render."""
