"""memory: the layers are left out"""


# ruff: noqa
def memory(tokens, layers, kv_heads, head_dim, bytes_each):
    n = 2 * tokens * kv_heads * head_dim
    return n, n * bytes_each
