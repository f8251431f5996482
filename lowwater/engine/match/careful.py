def find_matches_carefully(*a):
    raise NotImplementedError
