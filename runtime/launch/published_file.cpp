#include "runtime/launch/published_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "runtime/launch/node_name.hpp"

namespace mgplan::runtime {

bool publish_once(const std::string& path, const std::string& text) {
    const std::string mine = fmt::format("{}-{}-{}.new", path, node_name(process_environment()), ::getpid());
    {
        std::ofstream file(mine, std::ios::binary);
        file << text;
        file.close();
        if (!file) {
            ::unlink(mine.c_str());
            return false;
        }
    }
    bool first = ::link(mine.c_str(), path.c_str()) == 0;
    // File systems without hard links: renamed, so that the last one wins; unless there is one already.
    if (!first && errno != EEXIST && ::access(path.c_str(), F_OK) != 0) first = std::rename(mine.c_str(), path.c_str()) == 0;
    ::unlink(mine.c_str());
    return first;
}

std::optional<std::string> published_text(const std::string& path) {
    // Opening the folder makes a network file system look for new files on its server.
    const int folder = ::open(path.substr(0, path.rfind('/')).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) ::close(folder);
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace mgplan::runtime
