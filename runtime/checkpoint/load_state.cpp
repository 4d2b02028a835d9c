#include "runtime/checkpoint/load_state.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "model/device/device.hpp"
#include "plan/text/errors.hpp"
#include "runtime/checkpoint/crc32c.hpp"
#include "runtime/checkpoint/save_state.hpp"

namespace mgplan::runtime {
namespace {

/// Slices kept in memory, the last used ones: ranks that divided columns have rows side by side that the reader needs together.
constexpr std::size_t kKept = 8;

class SliceReader {
public:
    explicit SliceReader(const SavedCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

    /// The slice's values; valid until kKept others were read.
    const std::vector<std::byte>& values(const StoredSlice& stored) {
        const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& each) { return each.first == &stored; });
        if (found != kept_.end()) {
            kept_.splice(kept_.begin(), kept_, found);
            return kept_.front().second;
        }
        if (kept_.size() == kKept)
            kept_.splice(kept_.begin(), kept_, std::prev(kept_.end()));  // its memory serves again
        else
            kept_.emplace_front();
        auto& [of, bytes] = kept_.front();
        of = nullptr;
        bytes.resize(static_cast<std::size_t>((stored.slice.end - stored.slice.begin) * bytes_of(stored.dtype)));
        if (!file_ || open_ != stored.file) {
            file_.emplace(checkpoint_.path(stored.file), "checkpoint file");
            open_ = stored.file;
        }
        file_->read(stored.at, bytes);
        if (const std::uint32_t checksum = crc32c(bytes); checksum != stored.slice.checksum) {
            throw ConfigError(fmt::format(
                "{}: tensor '{}', bytes {} to {}, has the checksum {} and not {}: the file was damaged; restore it, or remove {} to go "
                "on from an earlier checkpoint",
                file_->path(), stored.slice.name, stored.at, stored.at + std::ssize(bytes), checksum_text(checksum),
                checksum_text(stored.slice.checksum), checkpoint_.folder()));
        }
        of = &stored;
        return bytes;
    }

private:
    const SavedCheckpoint& checkpoint_;
    std::optional<FileBytes> file_;
    std::size_t open_ = 0;
    std::list<std::pair<const StoredSlice*, std::vector<std::byte>>> kept_;
};

void check_like(const SavedCheckpoint& checkpoint, const model::StatePiece& piece) {
    const auto& slices = checkpoint.slices(piece.name);
    if (slices.empty())
        throw ConfigError(fmt::format("checkpoint {} has no tensor '{}'; it is of another model, or was trained with another optimizer",
                                      checkpoint.folder(), piece.name));
    const ShardOfWhole& saved = slices.front().slice.shard;
    if (saved.whole_rows != piece.shard.whole_rows || saved.whole_columns() != piece.shard.whole_columns()) {
        throw ConfigError(fmt::format("checkpoint {}: tensor '{}' is {} x {}, and the plan's {} x {}; it is of another model",
                                      checkpoint.folder(), piece.name, saved.whole_rows, saved.whole_columns(), piece.shard.whole_rows,
                                      piece.shard.whole_columns()));
    }
    if (slices.front().dtype != piece.values.dtype()) {
        throw ConfigError(
            fmt::format("checkpoint {}: tensor '{}' is of type {}, and the plan's of {}; use a plan with the types of the one "
                        "that wrote it",
                        checkpoint.folder(), piece.name, to_string(slices.front().dtype), to_string(piece.values.dtype())));
    }
}

}  // namespace

void load_state(const SavedCheckpoint& checkpoint, std::span<const model::StatePiece> pieces) {
    SliceReader reader(checkpoint);
    std::vector<std::byte> staged;
    for (const model::StatePiece& piece : pieces) {
        check_like(checkpoint, piece);
        const std::int64_t width = bytes_of(piece.values.dtype());
        for (std::int64_t begin = 0; begin < piece.values.elements(); begin += kSliceElements) {
            const std::int64_t end = std::min(begin + kSliceElements, piece.values.elements());
            staged.assign(static_cast<std::size_t>((end - begin) * width), std::byte{0});
            const auto runs = runs_in_whole(piece.shard, piece.begin + begin, piece.begin + end);
            std::int64_t wanted = 0, found = 0;
            for (const WholeRun& run : runs) wanted += run.size;
            for (const StoredSlice& stored : checkpoint.slices(piece.name)) {
                if (runs.empty() || stored.whole_end <= runs.front().in_whole ||
                    stored.whole_begin >= runs.back().in_whole + runs.back().size)
                    continue;
                const auto common = common_runs(runs_in_whole(stored.slice.shard, stored.slice.begin, stored.slice.end), runs);
                if (common.empty()) continue;
                const std::vector<std::byte>& values = reader.values(stored);
                for (const CommonRun& run : common) {
                    std::memcpy(staged.data() + (run.in_second - piece.begin - begin) * width,
                                values.data() + (run.in_first - stored.slice.begin) * width, static_cast<std::size_t>(run.size * width));
                    found += run.size;
                }
            }
            if (found != wanted) {
                throw ConfigError(
                    fmt::format("checkpoint {}: of tensor '{}' {} of {} elements are there; files are missing in its manifest",
                                checkpoint.folder(), piece.name, found, wanted));
            }
            piece.values.device().write(piece.values.slice(begin, end), staged.data());
        }
    }
}

}  // namespace mgplan::runtime
