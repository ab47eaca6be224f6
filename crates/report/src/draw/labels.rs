//! Labels at the ends of lines, moved apart so that they are readable.

/// Places labels near `wanted`, at least `gap` apart, and within `low..=high` if there is room.
/// Labels keep their order; each moves as little as a pass down and a pass up allow.
pub(super) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let wish = |index: &usize| wanted.get(*index).copied().unwrap_or(low);
    order.sort_by(|a, b| wish(a).total_cmp(&wish(b)));
    let mut places: Vec<f64> = order.iter().map(wish).collect();
    push_apart(&mut places, gap, low);
    // The last labels may be too low now: a pass from the end back.
    let mut limit = high;
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - gap;
    }
    // Without room for all, the first labels may be beyond the upper end: labels rather crowd below
    // than lie outside.
    if places.first().is_some_and(|first| *first < low) {
        push_apart(&mut places, gap, low);
    }
    let mut placed = vec![0.0; wanted.len()];
    for (index, place) in order.into_iter().zip(places) {
        if let Some(slot) = placed.get_mut(index) {
            *slot = place;
        }
    }
    placed
}

fn push_apart(places: &mut [f64], gap: f64, low: f64) {
    let mut limit = low;
    for place in places {
        *place = place.max(limit);
        limit = *place + gap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_room_stay() {
        assert_eq!(
            spread(&[10.0, 50.0, 30.0], 12.0, 0.0, 100.0),
            [10.0, 50.0, 30.0]
        );
    }

    #[test]
    fn crowded_labels_keep_their_order_and_distance() {
        let placed = spread(&[50.0, 51.0, 49.0, 98.0, 99.0], 12.0, 0.0, 100.0);
        let mut order: Vec<usize> = (0..5).collect();
        order.sort_by(|a, b| placed[*a].total_cmp(&placed[*b]));
        assert_eq!(order, [2, 0, 1, 3, 4]);
        for pair in order.windows(2) {
            assert!(
                placed[pair[1]] - placed[pair[0]] >= 12.0 - 1e-9,
                "{placed:?}"
            );
        }
        assert!(placed.iter().all(|place| (0.0..=100.0).contains(place)));
    }

    #[test]
    fn without_room_none_is_above_the_chart() {
        let placed = spread(&[5.0; 12], 12.0, 0.0, 60.0);
        assert!(placed.iter().all(|place| *place >= 0.0));
    }
}
