//! Knots: sets of modules that all reach one another, and the paths that tie them.

use std::collections::BTreeSet;

use crate::modules::edges::Edges;

/// Modules of a target that reach one another, as positions in order.
pub(crate) type Knot = Vec<usize>;

/// The knots of at least two modules, the largest first.
pub(crate) fn of(modules: usize, edges: &Edges) -> Vec<Knot> {
    let reached: Vec<BTreeSet<usize>> = (0..modules).map(|from| reach(from, edges)).collect();
    let mut knots = Vec::new();
    let mut seen = BTreeSet::new();
    for module in 0..modules {
        if !seen.contains(&module) {
            let knot: Knot = (0..modules)
                .filter(|other| *other == module || reaches_both_ways(&reached, module, *other))
                .collect();
            seen.extend(knot.iter().copied());
            if knot.len() > 1 {
                knots.push(knot);
            }
        }
    }
    knots.sort_by_key(|knot| (usize::MAX - knot.len(), knot.first().copied()));
    knots
}

fn reaches_both_ways(reached: &[BTreeSet<usize>], one: usize, other: usize) -> bool {
    reached[one].contains(&other) && reached[other].contains(&one)
}

fn reach(from: usize, edges: &Edges) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for ((_, to), _) in edges.range((module, 0)..=(module, usize::MAX)) {
            if reached.insert(*to) {
                open.push(*to);
            }
        }
    }
    reached
}

/// Edges without which the modules of a knot have no cycle: few, but not always the fewest.
///
/// The modules are put in an order with few backward paths, which is improved by moving one module
/// at a time. The backward paths are the result.
pub(crate) fn ties(knot: &Knot, edges: &Edges) -> Vec<(usize, usize)> {
    let weigh = |from: usize, to: usize| edges.get(&(from, to)).map_or(0, Vec::len);
    let mut order = first_order(knot, &weigh);
    while let Some(better) = with_one_moved(&order, &weigh) {
        order = better;
    }
    leading_back(&order, &weigh)
}

/// The modules in the order of their outgoing paths minus their incoming paths.
fn first_order(knot: &Knot, weigh: &impl Fn(usize, usize) -> usize) -> Vec<usize> {
    let mut left = knot.clone();
    let mut order = Vec::new();
    while !left.is_empty() {
        let surplus = |module: usize| {
            let out: usize = left.iter().map(|&other| weigh(module, other)).sum();
            let into: usize = left.iter().map(|&other| weigh(other, module)).sum();
            (into == 0, out.saturating_sub(into), usize::MAX - into)
        };
        let best = left
            .iter()
            .copied()
            .max_by_key(|&module| surplus(module))
            .unwrap_or_default();
        left.retain(|&module| module != best);
        order.push(best);
    }
    order
}

/// The order with one module moved to the place that saves most; `None` if no move saves any.
fn with_one_moved(order: &[usize], weigh: &impl Fn(usize, usize) -> usize) -> Option<Vec<usize>> {
    let mut best = None;
    let mut best_saving = 0;
    for (place, &module) in order.iter().enumerate() {
        for step in [-1, 1] {
            let mut saving = 0_isize;
            let mut at = place;
            while let Some(&passed) = at.checked_add_signed(step).and_then(|it| order.get(it)) {
                at = at.saturating_add_signed(step);
                let (first, second) = if step < 0 {
                    (passed, module)
                } else {
                    (module, passed)
                };
                let [back, ahead] = [weigh(second, first), weigh(first, second)];
                saving += back.cast_signed() - ahead.cast_signed();
                if saving > best_saving {
                    best_saving = saving;
                    best = Some((place, at));
                }
            }
        }
    }
    let (from, to) = best?;
    let mut moved = order.to_vec();
    let module = moved.remove(from);
    moved.insert(to, module);
    Some(moved)
}

fn leading_back(order: &[usize], weigh: &impl Fn(usize, usize) -> usize) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (place, &first) in order.iter().enumerate() {
        let behind = &order[place + 1..];
        found.extend(
            behind
                .iter()
                .filter(|&&second| weigh(second, first) > 0)
                .map(|&second| (second, first)),
        );
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(list: &[(usize, usize, usize)]) -> Edges {
        list.iter()
            .map(|&(from, to, paths)| ((from, to), vec![1; paths]))
            .collect()
    }

    #[test]
    fn modules_that_reach_each_other_are_a_knot() {
        let edges = edges(&[
            (0, 1, 1),
            (1, 2, 1),
            (2, 1, 1),
            (3, 4, 1),
            (4, 5, 1),
            (5, 3, 1),
            (2, 3, 1),
        ]);
        assert_eq!(of(7, &edges), [vec![3, 4, 5], vec![1, 2]]);
        assert!(of(2, &super::tests::edges(&[(0, 1, 1)])).is_empty());
    }

    #[test]
    fn the_paths_that_tie_a_knot_are_few_and_without_them_it_is_none() {
        let all = edges(&[
            (0, 1, 3),
            (1, 2, 1),
            (2, 0, 2),
            (1, 0, 1),
            (2, 3, 5),
            (3, 1, 1),
        ]);
        let knot = vec![0, 1, 2, 3];
        let ties = ties(&knot, &all);
        assert_eq!(ties, [(1, 0), (1, 2)]);
        let mut left = all;
        left.retain(|edge, _| !ties.contains(edge));
        assert!(of(4, &left).is_empty());
    }
}
