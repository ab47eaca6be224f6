//! The number of one-byte changes that turn one text into another (Levenshtein), for `similar_to`.

/// True if the distance is at most `max`.
pub(crate) fn within_edit_distance(left: &[u8], right: &[u8], max: usize) -> bool {
    if left.len().abs_diff(right.len()) > max {
        return false;
    }
    if left.len().max(right.len()) <= max {
        return true;
    }
    edit_distance(left, right) <= max
}

fn edit_distance(left: &[u8], right: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (done, from) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (index, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[right.len()]
}
