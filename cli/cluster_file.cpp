#include "cli/cluster_file.hpp"

#include <ctime>
#include <ostream>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output_file.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {

std::string today() {
    return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
}

std::string cluster_file_text(const ClusterSpec& cluster) {
    return cluster_to_json(cluster).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void write_whole_file(const std::string& path, const std::string& option, const std::string& text) {
    if (!write_output_file(path, [&text](std::ostream& out) { out << text; }))
        throw RunError(fmt::format("{} {}: the file cannot be written; is the disk full?", option, path));
}

}  // namespace mgplan::cli
