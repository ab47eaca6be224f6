//! The command lines of a document, each with its mark.
//!
//! ```text
//! <!-- printed: MARK -->              in front of a block: for all of its command lines
//! <!-- printed: MARK; MARK; MARK -->  one for each of them, in order
//!
//! MARK = run                          runs as printed
//!        run with `A` as `B`, ...     runs with B in place of A: a shorter duration, a fixture
//!        serve, serve with ...        starts the server with which the lines behind it run
//!        elsewhere                    needs another host
//!        by hand                      measured by hand
//! ```

/// The programs that a command line begins with.
const PROGRAMS: [&str; 7] = [
    "kvorum",
    "cargo",
    "curl",
    "riak",
    "riak-admin",
    "rsync",
    "openssl",
];

/// Blocks in other languages than these hold no command lines.
const SHELLS: [&str; 3] = ["", "sh", "console"];

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Printed {
    /// The line in its document on which it begins.
    pub(crate) number: usize,
    /// The line as printed, with its continuation.
    pub(crate) text: String,
    /// Its use, or the defect of its mark.
    pub(crate) mark: Result<Mark, &'static str>,
}

/// The use of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is run, with replacements.
    Run(Vec<(String, String)>),
    /// It starts a server, with replacements.
    Serve(Vec<(String, String)>),
    /// It needs another host.
    Elsewhere,
    /// It was measured by hand.
    ByHand,
}

impl Printed {
    /// The line as it is run.
    pub(crate) fn replaced(&self, replacements: &[(String, String)]) -> String {
        let mut text = self.text.clone();
        for (printed, run) in replacements {
            text = text.replace(printed, run);
        }
        text
    }
}

/// All command lines of a document.
pub(crate) fn lines(text: &str) -> Vec<Printed> {
    let mut found = Vec::new();
    let mut marks = None;
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        if let Some(comment) = comment(line) {
            marks = Some(comment);
        } else if let Some(language) = line.trim_start().strip_prefix("```") {
            let is_shell = SHELLS.contains(&language.trim());
            let block: Vec<(usize, &str)> = lines
                .by_ref()
                .take_while(|(_, line)| !line.trim_start().starts_with("```"))
                .collect();
            if is_shell {
                found.extend(marked(&commands(&block), marks));
            }
            marks = None;
        } else if !line.trim().is_empty() {
            marks = None;
        }
    }
    found
}

fn comment(line: &str) -> Option<&str> {
    let comment = line.trim().strip_prefix("<!-- printed:")?;
    comment.strip_suffix("-->").map(str::trim)
}

fn commands(block: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (index, line) in block {
        let plain = line.trim().strip_prefix("$ ").unwrap_or(line.trim());
        match commands.last_mut() {
            Some((_, command)) if continues => {
                command.push('\n');
                command.push_str(plain);
            }
            _ => {
                let program = plain.split(' ').next().unwrap_or_default();
                if !PROGRAMS.contains(&program) {
                    continue;
                }
                commands.push((index + 1, plain.to_owned()));
            }
        }
        continues = plain.ends_with('\\');
    }
    commands
}

fn marked(commands: &[(usize, String)], marks: Option<&str>) -> Vec<Printed> {
    let marks: Option<Vec<_>> = marks.map(|marks| marks.split(';').map(parse).collect());
    let of = |position: usize| match &marks {
        None => Err("a command line has no mark"),
        Some(marks) if marks.len() == 1 => marks[0].clone(),
        Some(marks) if marks.len() == commands.len() => marks[position].clone(),
        Some(_) => Err("there are other numbers of marks and of command lines"),
    };
    let commands = commands.iter().enumerate();
    commands
        .map(|(position, (number, text))| Printed {
            number: *number,
            text: text.clone(),
            mark: of(position),
        })
        .collect()
}

fn parse(mark: &str) -> Result<Mark, &'static str> {
    let mark = mark.trim();
    let (word, rest) = match mark.split_once(" with ") {
        Some((word, rest)) => (word.trim(), rest),
        None => (mark, ""),
    };
    let replacements = replacements(rest);
    match word {
        "run" => replacements.map(Mark::Run),
        "serve" => replacements.map(Mark::Serve),
        "elsewhere" => Ok(Mark::Elsewhere),
        "by hand" => Ok(Mark::ByHand),
        _ => Err("a mark is none of run, serve, elsewhere and by hand"),
    }
}

/// Pairs of `A` as `B`.
fn replacements(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let pieces: Vec<&str> = text.split('`').collect();
    // Before, A, between, B, and so on, and what is behind the last one.
    let groups = pieces[..pieces.len() - 1].chunks(4);
    let pairs = groups.map(|group| match group {
        [_, printed, between, run] if between.trim() == "as" && !printed.is_empty() => {
            Ok(((*printed).to_owned(), (*run).to_owned()))
        }
        _ => Err("replacements are written `A` as `B`"),
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(printed: &str, run: &str) -> (String, String) {
        (printed.to_owned(), run.to_owned())
    }

    #[test]
    fn each_command_line_has_its_mark() {
        let text = "text\n<!-- printed: serve; run with `60` as `2`, `DIR` as `x y`; by hand -->\n\
                    ```sh\nkvorum server\nsome output\n$ kvorum bench run --duration 60 \\\n    DIR\n\
                    cargo xtask test\n```\n\n```json\ncurl x\n```\n<!-- printed: run -->\nnot adjacent\n\
                    ```\ncurl y\n```\n";
        let lines = lines(text);
        let marks: Vec<_> = lines.iter().map(|it| it.mark.clone()).collect();
        let run = Mark::Run(vec![pair("60", "2"), pair("DIR", "x y")]);
        assert_eq!(
            marks,
            [
                Ok(Mark::Serve(Vec::new())),
                Ok(run),
                Ok(Mark::ByHand),
                Err("a command line has no mark"),
            ]
        );
        assert_eq!(lines[1].number, 6);
        let replaced = lines[1].replaced(&[pair("60", "2"), pair("DIR", "x y")]);
        assert_eq!(replaced, "kvorum bench run --duration 2 \\\nx y");
    }

    #[test]
    fn marks_that_say_nothing_are_told() {
        for (marks, is_right) in [
            ("run", true),
            ("elsewhere", true),
            ("run; run", false),
            ("perhaps", false),
            ("run with `A`", false),
            ("run with `A` for `B`", false),
        ] {
            let text = format!("<!-- printed: {marks} -->\n```\nkvorum ping\n```\n");
            assert_eq!(lines(&text)[0].mark.is_ok(), is_right, "{marks}");
        }
    }
}
