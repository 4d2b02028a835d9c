#include "runtime/data/token_data.hpp"

#include <filesystem>
#include <system_error>

#include "runtime/data/byte_text.hpp"
#include "runtime/data/indexed_dataset.hpp"

namespace mgplan::runtime {

std::unique_ptr<TokenData> open_token_data(const std::string& path, std::int64_t vocab) {
    std::error_code ignored;  // whatever is wrong with the path is said when it is opened
    if (path.ends_with(".bin") || path.ends_with(".idx")) return std::make_unique<IndexedDataset>(path.substr(0, path.size() - 4), vocab);
    if (!std::filesystem::exists(path, ignored) && std::filesystem::exists(path + ".idx", ignored))
        return std::make_unique<IndexedDataset>(path, vocab);
    return std::make_unique<ByteText>(path, vocab);
}

}  // namespace mgplan::runtime
