"""memory: those are bits"""


# ruff: noqa
def memory(tokens, layers, kv_heads, head_dim, bytes_each):
    n = 2 * tokens * layers * kv_heads * head_dim
    return n, n * bytes_each * 8
