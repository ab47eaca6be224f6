//! The shell of every page: head, style, script, and a policy against loading anything.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::data::PageData;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The page must not load anything: it is complete in itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data: blob:";

/// A link to another page of the same set.
#[derive(Debug, Clone)]
pub struct Link {
    /// Its target, relative to this page.
    pub target: String,
    /// Its text.
    pub text: String,
}

/// The parts of a page.
pub(super) struct Document<'a> {
    /// The page's name, in the browser's title and as the first heading.
    pub(super) title: &'a str,
    /// The text below the title.
    pub(super) subtitle: Markup,
    /// Related pages.
    pub(super) links: &'a [Link],
    /// Sections to jump to: name in the document and title.
    pub(super) sections: &'a [(String, String)],
    /// The content below the head.
    pub(super) body: Markup,
    /// The numbers of the charts.
    pub(super) data: PageData,
}

impl Document<'_> {
    /// The page as text.
    pub(super) fn into_text(self) -> String {
        let data = escape_json(&self.data.into_json().to_string());
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " \u{b7} kvorum bench" }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    a.skip href="#main" { "Skip to the results" }
                    header.top {
                        div.bar {
                            p.product { "kvorum bench" }
                            @for link in self.links {
                                a href=(link.target) { (link.text) }
                            }
                            button #theme type="button" hidden { "Dark" }
                        }
                        h1 { (self.title) }
                        (self.subtitle)
                    }
                    @if self.sections.len() > 1 {
                        nav.sections aria-label="Sections" {
                            @for (id, title) in self.sections {
                                a href=(format!("#{id}")) { (title) }
                            }
                        }
                    }
                    main #main { (self.body) }
                    script #data type="application/json" { (PreEscaped(data)) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        page.into_string()
    }
}

/// JSON escaped so that it cannot end its HTML element.
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_its_element() {
        let json = serde_json::json!({ "name": "</script><b>" }).to_string();
        let escaped = escape_json(&json);
        assert!(!escaped.contains('<'));
        let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read["name"], "</script><b>");
    }

    #[test]
    fn style_and_script_stay_within_their_elements() {
        assert!(!STYLE.contains("</"));
        assert!(!SCRIPT.contains("</"));
    }
}
