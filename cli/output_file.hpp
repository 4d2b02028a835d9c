#pragma once
// Files that a command writes: checked before anything is computed, and replaced only by the whole new text.

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "plan/text/errors.hpp"

namespace mgplan::cli {

/// A word of the command line that names a file: "--html", or "PLAN" for a word without an option.
struct NamedFile {
    std::string option;
    std::string path;
};

/// Adds a problem for each output that is the same file as another output, or as a word of `others` (an input: the file
/// itself, a folder's config.json, FILE.bin, FILE.idx, or the part before a comma). Pipes and devices may be named twice.
/// Touches nothing.
void add_same_file_problems(Problems& problems, const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& others);

/// Adds a problem for each output that cannot be written. Its contents stay; a file that was not there is not created.
void add_unwritable_problems(Problems& problems, const std::vector<NamedFile>& outputs);

/// Writes the file, through a neighbour that takes its place only when it is complete: on failure an existing file is as
/// before. Writes directly where that is not possible (pipes, devices, files with several names, links to
/// nothing, folders that accept no new file). Returns true if all of it was written.
[[nodiscard]] bool write_output_file(const std::string& path, const std::function<void(std::ostream&)>& write_to);

}  // namespace mgplan::cli
