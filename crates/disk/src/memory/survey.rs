//! The image after a crash: a new tree with the surviving part of the old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::content::{Content, FileNode};
use super::crash::{CrashOptions, Draw};
use super::names::{DirectoryId, Names, Node, ROOT, Tree};
use super::used::Used;

/// The tree after a crash, and the space that it uses.
pub(super) fn survey(tree: &Tree, used: &Used, options: CrashOptions) -> (Tree, Arc<Used>) {
    let mut draw = Draw::new(options.seed);
    let mut survey = Survey {
        left: tree.survivors(options.names, &mut draw),
        options,
        draw,
        files: BTreeMap::new(),
        used: used.nothing_like(),
        tree: Tree::new(),
    };
    survey.visit(ROOT, ROOT);
    (survey.tree, survey.used)
}

/// Copies the tree after a crash into a new one, in the order of the names, so that the draws
/// depend only on these.
struct Survey {
    left: BTreeMap<DirectoryId, Names>,
    options: CrashOptions,
    draw: Draw,
    /// Files that were already found under another name.
    files: BTreeMap<u64, Arc<FileNode>>,
    used: Arc<Used>,
    tree: Tree,
}

impl Survey {
    fn visit(&mut self, from: DirectoryId, to: DirectoryId) {
        // Taken out, so that a directory left with two names is visited once.
        let mut names = self.left.remove(&from).unwrap_or_default();
        for node in names.values_mut() {
            *node = match node {
                Node::File(file) => Node::File(self.file(file)),
                Node::Directory(id) => {
                    let copy = self.tree.add_directory();
                    self.visit(*id, copy);
                    Node::Directory(copy)
                }
            };
        }
        self.tree.set_durable(to, names);
    }

    fn file(&mut self, file: &Arc<FileNode>) -> Arc<FileNode> {
        if let Some(copy) = self.files.get(&file.id) {
            return Arc::clone(copy);
        }
        let left = file
            .content
            .lock()
            .survivor(self.options.data, &mut self.draw);
        let copy = FileNode::new(self.tree.mint_id(), Content::durable(left), &self.used);
        self.files.insert(file.id, Arc::clone(&copy));
        copy
    }
}
