#include "cli/cluster_file.hpp"

#include <ctime>
#include <filesystem>
#include <fstream>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/cluster_json.hpp"
#include "plan/errors.hpp"

namespace mgplan::cli {

std::string today() {
    return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
}

std::string cluster_file_text(const ClusterSpec& cluster) {
    return cluster_to_json(cluster).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void write_whole_file(const std::string& path, const std::string& option, const std::string& text) {
    const std::string part = path + ".part";
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) throw RunError(fmt::format("{} {}: {} cannot be written; is the disk full?", option, path, part));
    std::error_code error;
    std::filesystem::rename(part, path, error);
    if (error) throw RunError(fmt::format("{} {}: {} cannot be renamed to it: {}", option, path, part, error.message()));
}

}  // namespace mgplan::cli
