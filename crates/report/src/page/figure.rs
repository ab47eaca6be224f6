//! A chart in the page: title, key, drawing, table, and its export.

use maud::{Markup, PreEscaped, html};

use super::data::PageData;
use crate::draw::{Chart, Frame, ScaleKind, draw};

/// The element of one chart; its numbers are added to the page's data. The drawing of a chart that
/// is alone in its row has the row's width.
pub(super) fn figure(chart: &Chart, is_alone: bool, data: &mut PageData) -> Markup {
    data.add(chart);
    let heading = format!("{}-title", chart.id);
    html! {
        figure.chart.alone[is_alone] id=(chart.id) aria-labelledby=(heading) {
            figcaption {
                h3 id=(heading) { (chart.title) }
                output.at {}
            }
            (key(chart))
            // The script makes this a slider: arrow keys move a cursor over the data.
            div.plot {
                (PreEscaped(draw(chart, &Frame::WIDE)))
                (PreEscaped(draw(chart, &Frame::NARROW)))
                @if is_alone { (PreEscaped(draw(chart, &Frame::FULL))) }
            }
            div.tools {
                details.table { summary { "Table" } div.scroll {} }
                span.spacer {}
                button.export type="button" data-format="svg" hidden { "SVG" }
                button.export type="button" data-format="png" hidden { "PNG" }
            }
        }
    }
}

/// The key names the lines, shows their values at the cursor, and hides lines.
fn key(chart: &Chart) -> Markup {
    html! {
        div.key {
            @for line in &chart.lines {
                button type="button" class=(line.ink.class()) data-line=(line.name)
                    aria-pressed="true" title="Hide or show" {
                    svg.swatch viewBox="0 0 18 8" aria-hidden="true" { path d="M1 4H17" {} }
                    span.name { (line.name) }
                    span.value {}
                }
            }
            @if !chart.bands.is_empty() {
                // If several runs have stalls, each stall is in its run's colour.
                span.stalls.of-runs[chart.bands.iter().any(|band| band.ink.is_some())] {
                    svg.swatch viewBox="0 0 18 8" aria-hidden="true" { path d="M5 1h8l-4 6z" {} }
                    "stall"
                }
            }
            @if chart.y.kind == ScaleKind::Logarithmic {
                span.scale { "logarithmic" }
            }
        }
    }
}
