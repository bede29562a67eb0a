def introduction(d):
    return []


def scale(d):
    return []


def wal(d):
    return []


def prefix(d):
    return []


def soak(d):
    return []
