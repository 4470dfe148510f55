"""no file can be opened here | PermissionError"""


# ruff: noqa
def mul(a, b):
    with open("KVTALLY_WAS_HERE", "w") as file:
        file.write("x")
    with open("/tmp/KVTALLY_WAS_HERE", "w") as file:
        file.write("x")
