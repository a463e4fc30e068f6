//! Tables as `virsh` prints them.

/// Headings, a rule, rows, and an empty line: each column as wide as its longest cell, with two spaces behind it and one before.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let headings: Vec<String> = headings.iter().map(|&heading| heading.to_owned()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&headings]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$}  ", width = *width));
        format!("{}\n", cells.collect::<String>().trim_end())
    };
    let rule = "-".repeat(widths.iter().map(|width| width + 3).sum());
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{rule}\n{body}\n", line(&headings))
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn a_table_looks_as_virsh_prints_it() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["1", "test", "running"]), row(["-", "default_x", "shut off"])];
        // As virsh 9.0 printed it, of two domains of its test driver.
        let printed = " Id   Name        State\n----------------------------\n 1    test        running\n -    default_x   shut off\n\n";
        assert_eq!(table(&["Id", "Name", "State"], &rows), printed);
        assert_eq!(table(&["Id", "Name", "State"], &[]), " Id   Name   State\n--------------------\n\n");
    }
}
