//! A chart as SVG: axes, marked stretches, lines, and the lines' names at their ends.
//!
//! Colours and line widths are classes of the page's style sheet, so that one drawing serves the
//! light and the dark page. A chart is drawn once for wide and once for narrow screens, since
//! scaled-down text cannot be read on a phone.

use std::fmt::Write as _;

use super::chart::{Chart, Ink, Line};
use super::labels::spread;
use super::scale_kind::ScaleKind;
use super::thinning::{Point, thin};

/// The size of a drawing in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// The class with which the style sheet shows or hides the drawing.
    pub class: &'static str,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
    /// True if lines are named at their ends.
    pub has_labels: bool,
}

impl Frame {
    /// The size for screens larger than a phone's.
    pub const WIDE: Self = Self {
        class: "wide",
        width: 640.0,
        height: 300.0,
        has_labels: true,
    };

    /// The size of a chart that fills a row of a large screen.
    pub const FULL: Self = Self {
        class: "full",
        width: 1200.0,
        height: 300.0,
        has_labels: true,
    };

    /// The size for phones.
    pub const NARROW: Self = Self {
        class: "narrow",
        width: 340.0,
        height: 250.0,
        has_labels: false,
    };
}

/// The approximate width of a label's letter, in pixels.
const LETTER: f64 = 6.1;

/// The minimum distance between the base lines of two labels, in pixels.
const LABEL_GAP: f64 = 13.5;

/// The maximum length of a label; a longer name is cut.
const LABEL_LETTERS_MAX: usize = 20;

/// The inner rectangle, where the lines are.
struct Plot {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Plot {
    fn of(chart: &Chart, frame: &Frame) -> Self {
        let ticks = chart.y.labelled_ticks();
        let letters = ticks.map(|(_, text)| text.chars().count()).max();
        let left = as_float(letters.unwrap_or(0)) * LETTER + 12.0;
        let right = if has_labels(chart, frame) {
            let letters = chart.lines.iter().map(|line| label(line).chars().count());
            as_float(letters.max().unwrap_or(0)) * LETTER + 14.0
        } else {
            14.0
        };
        let (top, bottom) = (26.0, 40.0);
        Self {
            left,
            top,
            width: frame.width - left - right,
            height: frame.height - top - bottom,
        }
    }

    fn x(&self, chart: &Chart, value: f64) -> f64 {
        self.left + self.width * chart.x.place(value)
    }

    fn y(&self, chart: &Chart, value: f64) -> f64 {
        self.top + self.height * (1.0 - chart.y.place(value))
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }
}

/// Draws a chart. The text is a whole `svg` element.
pub fn draw(chart: &Chart, frame: &Frame) -> String {
    let plot = Plot::of(chart, frame);
    let mut svg = String::new();
    // Writing into a string cannot fail.
    let _ = write!(
        svg,
        "<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" \
         data-left=\"{:.1}\" data-top=\"{:.1}\" data-width=\"{:.1}\" data-height=\"{:.1}\">",
        frame.class,
        frame.width,
        frame.height,
        escape(&describe(chart)),
        plot.left,
        plot.top,
        plot.width,
        plot.height,
    );
    draw_bands(&mut svg, chart, &plot);
    draw_axes(&mut svg, chart, &plot, frame);
    // The first line is the most important one, so it is on top.
    for line in chart.lines.iter().rev() {
        draw_line(&mut svg, chart, &plot, line);
    }
    if has_labels(chart, frame) {
        draw_labels(&mut svg, chart, &plot);
    }
    svg.push_str("<g class=\"cursor\"></g></svg>");
    svg
}

fn has_labels(chart: &Chart, frame: &Frame) -> bool {
    frame.has_labels && chart.lines.len() > 1
}

/// A description of the drawing for screen readers.
fn describe(chart: &Chart) -> String {
    let mut text = format!("{}.", chart.title);
    for line in &chart.lines {
        let Some((least, greatest)) = line.values().fold(None, |range, value| {
            let (least, greatest): (f64, f64) = range.unwrap_or((value, value));
            Some((least.min(value), greatest.max(value)))
        }) else {
            continue;
        };
        let unit = chart.y.unit;
        let _ = write!(
            text,
            " {}: from {} to {}.",
            line.name,
            unit.text(least),
            unit.text(greatest)
        );
    }
    match chart.bands.len() {
        0 => {}
        1 => text.push_str(" One stall is marked."),
        count => {
            let _ = write!(text, " {count} stalls are marked.");
        }
    }
    text
}

fn draw_bands(svg: &mut String, chart: &Chart, plot: &Plot) {
    for band in &chart.bands {
        let from = plot.x(chart, band.from).clamp(plot.left, plot.right());
        let to = plot.x(chart, band.to).clamp(plot.left, plot.right());
        // Even a very short stall has to be visible.
        let width = (to - from).max(2.0);
        let middle = from + width / 2.0;
        let ink = band
            .ink
            .map_or_else(String::new, |ink| format!(" {}", ink.class()));
        let _ = write!(
            svg,
            "<g class=\"stall{ink}\"><title>{}</title>\
             <rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>\
             <path d=\"M{:.1} {:.1}h8l-4 6z\"/></g>",
            escape(&band.text),
            plot.top,
            plot.height,
            middle - 4.0,
            plot.top - 6.0,
        );
    }
}

fn draw_axes(svg: &mut String, chart: &Chart, plot: &Plot, frame: &Frame) {
    svg.push_str("<g class=\"axis\">");
    for (tick, text) in chart.y.labelled_ticks() {
        let y = plot.y(chart, tick);
        let class = if tick == 0.0 && chart.y.kind == ScaleKind::Linear {
            "base"
        } else {
            "grid"
        };
        let _ = write!(
            svg,
            "<path class=\"{class}\" d=\"M{:.1} {y:.1}H{:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            plot.left,
            plot.right(),
            plot.left - 7.0,
            y + 3.8,
            escape(&text),
        );
    }
    if chart.y.kind == ScaleKind::Logarithmic {
        let (left, bottom, right) = (plot.left, plot.bottom(), plot.right());
        let _ = write!(
            svg,
            "<path class=\"base\" d=\"M{left:.1} {bottom:.1}H{right:.1}\"/>"
        );
    }
    draw_x_ticks(svg, chart, plot, frame);
    let _ = write!(
        svg,
        "<text class=\"title\" x=\"{:.1}\" y=\"13\">{}</text>\
         <text class=\"title\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text></g>",
        4.0,
        escape(&chart.y_title),
        plot.right(),
        plot.bottom() + 34.0,
        escape(&chart.x_title),
    );
}

fn draw_x_ticks(svg: &mut String, chart: &Chart, plot: &Plot, frame: &Frame) {
    for (tick, text) in chart.x.labelled_ticks() {
        let x = plot.x(chart, tick);
        let half = as_float(text.chars().count()) * LETTER / 2.0;
        let place = x.min(frame.width - half - 2.0);
        let _ = write!(
            svg,
            "<path class=\"tick\" d=\"M{x:.1} {:.1}v4\"/>\
             <text x=\"{place:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            plot.bottom(),
            plot.bottom() + 17.0,
            escape(&text),
        );
    }
}

fn draw_line(svg: &mut String, chart: &Chart, plot: &Plot, line: &Line) {
    let stretches = stretches(chart, plot, line);
    let points: usize = stretches.iter().map(Vec::len).sum();
    let is_dense = as_float(points) > plot.width;
    let _ = write!(
        svg,
        "<g class=\"line {}{}\" data-line=\"{}\">",
        line.ink.class(),
        if is_dense { " dense" } else { "" },
        escape(&line.name)
    );
    if line.ink == Ink::Main && chart.y.kind == ScaleKind::Linear {
        svg.push_str("<path class=\"area\" d=\"");
        for stretch in &stretches {
            push_path(svg, stretch);
            if let (Some(first), Some(last)) = (stretch.first(), stretch.last()) {
                let bottom = plot.bottom();
                let _ = write!(
                    svg,
                    "L{:.1} {bottom:.1}L{:.1} {bottom:.1}Z",
                    last.0, first.0
                );
            }
        }
        svg.push_str("\"/>");
    }
    svg.push_str("<path d=\"");
    for stretch in &stretches {
        push_path(svg, stretch);
    }
    svg.push_str("\"/></g>");
}

/// The points of a line in pixels, cut where there is no value.
fn stretches(chart: &Chart, plot: &Plot, line: &Line) -> Vec<Vec<Point>> {
    let points: Vec<(f64, Option<f64>)> =
        line.x.iter().copied().zip(line.y.iter().copied()).collect();
    points
        .split(|(_, value)| value.is_none())
        .filter(|stretch| !stretch.is_empty())
        .map(|stretch| {
            let known = stretch
                .iter()
                .filter_map(|(x, value)| Some((*x, (*value)?)));
            let places: Vec<Point> = known
                .map(|(x, value)| (plot.x(chart, x), plot.y(chart, value)))
                .collect();
            thin(&places)
        })
        .collect()
}

fn push_path(svg: &mut String, stretch: &[Point]) {
    for (index, (x, y)) in stretch.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(svg, "{command}{x:.1} {y:.1}");
    }
    if stretch.len() == 1 {
        // With a round cap, a point on its own becomes a dot.
        svg.push_str("h0");
    }
}

fn draw_labels(svg: &mut String, chart: &Chart, plot: &Plot) {
    let named: Vec<(&Line, Point)> = chart
        .lines
        .iter()
        .filter_map(|line| Some((line, end(chart, plot, line)?)))
        .collect();
    let wanted: Vec<f64> = named.iter().map(|(_, end)| end.1).collect();
    let places = spread(&wanted, LABEL_GAP, plot.top + 2.0, plot.bottom());
    for ((line, (x, _)), y) in named.iter().zip(places) {
        let _ = write!(
            svg,
            "<text class=\"label {}\" data-line=\"{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            line.ink.class(),
            escape(&line.name),
            x + 7.0,
            y + 3.8,
            escape(&label(line)),
        );
    }
}

/// The last point of a line, which may be before the end of the axis.
fn end(chart: &Chart, plot: &Plot, line: &Line) -> Option<Point> {
    let known = line.x.iter().zip(&line.y).rev();
    let (x, y) = known.filter_map(|(x, y)| Some((*x, (*y)?))).next()?;
    Some((plot.x(chart, x), plot.y(chart, y)))
}

/// A line's name, cut if it is too long for the drawing.
fn label(line: &Line) -> String {
    if line.name.chars().count() <= LABEL_LETTERS_MAX {
        return line.name.clone();
    }
    let mut short: String = line.name.chars().take(LABEL_LETTERS_MAX - 1).collect();
    short.push('\u{2026}');
    short
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Converts a count of letters or lines, which is always small.
fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Band, Scale, Unit};

    fn line(name: &str, ink: Ink, y: &[Option<f64>]) -> Line {
        Line {
            name: name.to_owned(),
            ink,
            x: (0..y.len()).map(as_float).collect(),
            y: y.to_vec(),
        }
    }

    fn chart(lines: Vec<Line>) -> Chart {
        Chart {
            id: "x".to_owned(),
            title: "Throughput <1>".to_owned(),
            x_title: "time".to_owned(),
            y_title: "ops/s".to_owned(),
            x: Scale::up_to(Unit::Seconds, 10.0, 5),
            y: Scale::from_zero(Unit::Rate, 100.0, 5),
            lines,
            bands: vec![Band {
                from: 4.0,
                to: 5.0,
                text: "a stall".to_owned(),
                ink: None,
            }],
            table: Vec::new(),
        }
    }

    /// The inner rectangle, from the attributes of the drawing.
    fn plot_of(svg: &str) -> [f64; 4] {
        ["left", "top", "width", "height"].map(|side| {
            let start = format!("data-{side}=\"");
            let (_, rest) = svg.split_once(&start).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        })
    }

    #[test]
    fn points_lie_where_their_values_are() {
        let svg = draw(
            &chart(vec![line("a", Ink::Second, &[Some(0.0), Some(100.0)])]),
            &Frame::NARROW,
        );
        let [left, top, width, height] = plot_of(&svg);
        let expected = format!(
            "M{left:.1} {:.1}L{:.1} {top:.1}",
            top + height,
            left + width / 10.0
        );
        assert!(svg.contains(&expected), "{expected} in {svg}");
    }

    #[test]
    fn a_gap_cuts_the_line_and_a_lone_point_is_a_dot() {
        let gap = [
            Some(1.0),
            Some(2.0),
            None,
            Some(3.0),
            None,
            Some(4.0),
            Some(5.0),
        ];
        let svg = draw(&chart(vec![line("a", Ink::Second, &gap)]), &Frame::WIDE);
        let (_, path) = svg.split_once("data-line=\"a\"><path d=\"").unwrap();
        let path = path.split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 3, "{path}");
        assert_eq!(path.matches("h0").count(), 1, "{path}");
    }

    #[test]
    fn lines_are_named_at_their_ends_where_there_is_room() {
        let lines = vec![
            line("mean", Ink::Rank(0), &[Some(10.0), Some(20.0)]),
            line("max", Ink::Rank(4), &[Some(90.0), Some(21.0)]),
        ];
        let wide = draw(&chart(lines.clone()), &Frame::WIDE);
        assert_eq!(wide.matches("class=\"label ").count(), 2);
        assert_eq!(
            draw(&chart(lines), &Frame::NARROW)
                .matches("class=\"label ")
                .count(),
            0
        );
    }

    #[test]
    fn stalls_are_marked_and_a_short_one_can_be_seen() {
        let mut chart = chart(Vec::new());
        chart.bands[0].to = 4.0001;
        let svg = draw(&chart, &Frame::WIDE);
        assert!(svg.contains("<title>a stall</title>"));
        assert!(svg.contains("width=\"2.0\""), "{svg}");
    }

    #[test]
    fn it_says_what_it_shows_and_escapes_it() {
        let svg = draw(
            &chart(vec![line("a\"b", Ink::Main, &[Some(10.0), Some(20.0)])]),
            &Frame::WIDE,
        );
        let label = "aria-label=\"Throughput &lt;1&gt;. a&quot;b: from 10\u{a0}ops/s to \
                     20\u{a0}ops/s. One stall is marked.\"";
        assert!(svg.contains(label), "{svg}");
    }

    #[test]
    fn a_long_name_is_cut_in_its_label_alone() {
        let long = "x".repeat(40);
        let lines = vec![
            line(&long, Ink::Run(0), &[Some(1.0)]),
            line("b", Ink::Run(1), &[Some(1.0)]),
        ];
        let svg = draw(&chart(lines), &Frame::WIDE);
        assert!(svg.contains(&format!("data-line=\"{long}\"")));
        assert!(svg.contains(&format!(">{}\u{2026}</text>", "x".repeat(19))));
    }
}
