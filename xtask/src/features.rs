//! Which cargo features a manifest declares.
//!
//! Reads just the `[features]` table, in the forms in which it is written by hand; it is not a TOML parser.

/// The features in the order of the manifest, without `default`.
pub(crate) fn declared(manifest: &str) -> Vec<String> {
    let mut features = Vec::new();
    let mut in_table = false;
    let mut in_list = false;
    for line in manifest.lines().map(without_comment) {
        if in_list {
            in_list = !line.contains(']');
        } else if line.starts_with('[') {
            in_table = line.replace(' ', "") == "[features]";
        } else if let Some((name, list)) = line.split_once('=').filter(|_| in_table) {
            features.push(name.trim().trim_matches('"').to_string());
            in_list = !list.contains(']');
        }
    }
    features.retain(|name| name != "default");
    features
}

/// Feature lists hold no `#` inside strings, so the first one begins a comment.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::declared;

    #[test]
    fn features_are_read_in_order_without_default() {
        let manifest = r#"
            [package]
            name = "x"
            [features]
            default = ["b"]
            # c = ["no"]
            b = []
            "a-1" = ["dep:d"] # why
            [dependencies]
            d = "1"
        "#;
        assert_eq!(declared(manifest), ["b", "a-1"]);
    }

    #[test]
    fn a_list_over_several_lines_is_one_feature() {
        let manifest = "[features]\nredis = [\n  \"dep:redis\", # the driver\n  \"tokio/net\",\n]\netcd = []\n";
        assert_eq!(declared(manifest), ["redis", "etcd"]);
    }

    #[test]
    fn other_tables_declare_no_features() {
        assert!(declared("[dependencies]\ntokio = { features = [\"rt\"] }\n[lints]\nworkspace = true\n").is_empty());
    }

    #[test]
    fn the_library_declares_its_conformance_suite() {
        let manifest = include_str!("../../lockfast/Cargo.toml");
        assert!(declared(manifest).contains(&"conformance".to_string()));
    }
}
