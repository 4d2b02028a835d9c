#pragma once
// What a test reads whole.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace mgplan::tests {

/// All bytes of a file; none where there is no such file, or where it goes while it is read, as those of a process under /proc do: the
/// stream catches what reading its buffer throws then.
inline std::string text_of_file(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

}  // namespace mgplan::tests
