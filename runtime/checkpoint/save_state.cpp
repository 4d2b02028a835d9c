#include "runtime/checkpoint/save_state.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "model/device/device.hpp"
#include "plan/text/errors.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/crc32c.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/slice_text.hpp"

namespace mgplan::runtime {
namespace {

namespace fs = std::filesystem;

/// Values begin where a block does.
constexpr std::size_t kAlignment = BlockWriter::kBlock;

struct PlannedSlice {
    SavedSlice slice;
    model::Tensor values;
};

/// Slices that this rank saves, each small enough for the staging buffer.
std::vector<PlannedSlice> plan_slices(std::span<const model::StatePiece> pieces) {
    std::vector<PlannedSlice> slices;
    for (const model::StatePiece& piece : pieces) {
        for (std::int64_t begin = piece.saves.begin; begin < piece.saves.end; begin += kSliceElements) {
            const std::int64_t end = std::min(begin + kSliceElements, piece.saves.end);
            PlannedSlice planned;
            planned.slice.name = piece.name;
            planned.slice.shard = piece.shard;
            planned.slice.begin = piece.begin + begin;
            planned.slice.end = piece.begin + end;
            planned.values = piece.values.slice(begin, end);
            slices.push_back(std::move(planned));
        }
    }
    return slices;
}

std::string tensor_name(const SavedSlice& slice) {
    return fmt::format("{}[{}:{}]", slice.name, slice.begin, slice.end);
}

SafetensorsHeader header_of(std::span<const PlannedSlice> slices, int rank, std::int64_t steps) {
    SafetensorsHeader header;
    header.metadata["format"] = fmt::format("mgplan checkpoint {}", kCheckpointVersion);
    header.metadata["rank"] = std::to_string(rank);
    header.metadata["steps"] = std::to_string(steps);
    std::int64_t at = 0;
    for (const auto& [slice, values] : slices) {
        const std::string name = tensor_name(slice);
        header.tensors.push_back({name, values.dtype(), {values.elements()}, at, at + values.bytes()});
        header.metadata[name] = slice_text(slice);
        at += values.bytes();
    }
    return header;
}

/// The values where they lie if the host can read them, else a copy in `staged`.
std::span<const std::byte> host_bytes(const model::Tensor& values, std::vector<std::byte>& staged) {
    const auto size = static_cast<std::size_t>(values.bytes());
    if (values.device().kind() == model::DeviceKind::cpu && !values.storage()->on_host())
        return {static_cast<const std::byte*>(values.data()), size};
    staged.resize(size);
    values.device().read(values, staged.data());
    return staged;
}

}  // namespace

std::int64_t save_rank_file(const std::string& folder, int rank, std::int64_t steps, std::span<const model::StatePiece> pieces,
                            FilePurpose purpose) {
    std::vector<PlannedSlice> slices = plan_slices(pieces);
    // Checksums precede the values in the file but are known only after them; all their texts have one length.
    const auto head_bytes = std::ssize(safetensors_head(header_of(slices, rank, steps), kAlignment));
    const std::string path = (fs::path(folder) / rank_file_name(rank)).string();
    if (head_bytes > kMostHeaderBytes)
        throw RunError(fmt::format("{} file {} would have a header of {} bytes; use more ranks", to_string(purpose), path, head_bytes));
    std::int64_t bytes = head_bytes;
    for (const auto& each : slices) bytes += each.values.bytes();
    make_folder(folder, purpose);
    try {
        refuse_link(folder, purpose);
    } catch (const ConfigError& error) {
        throw RunError(error.what());
    }
    DurableFile file(path, bytes, purpose);
    std::vector<std::byte> staged;
    BlockWriter writer(file, head_bytes);
    for (auto& [slice, values] : slices) {
        const std::span<const std::byte> host = host_bytes(values, staged);
        slice.checksum = crc32c(host);
        writer.append(host);
    }
    writer.finish();
    const std::string head = safetensors_head(header_of(slices, rank, steps), kAlignment);
    MGPLAN_ASSERT(std::ssize(head) == head_bytes, "checksums are equally long");
    file.write(0, std::as_bytes(std::span(head)));
    file.finish();
    sync_folder(folder, purpose);
    return bytes;
}

void finish_checkpoint(const std::string& folder, int ranks, Manifest& manifest, FilePurpose purpose) {
    std::set<std::string> names;
    for (int rank = 0; rank < ranks; ++rank) {
        RankFile entry;
        entry.name = rank_file_name(rank);
        const std::string path = (fs::path(folder) / entry.name).string();
        try {
            const FileBytes file(path, "checkpoint file");
            entry.bytes = file.size();
            const std::string head = read_safetensors_head(file);
            entry.checksum = crc32c(head);
        } catch (const ConfigError& error) {
            throw RunError(fmt::format("{}; rank {} has written it, so the folder must be one that all ranks share", error.what(), rank));
        }
        names.insert(entry.name);
        manifest.files.push_back(std::move(entry));
    }
    // Files left by an interrupted save of more ranks.
    std::error_code error;
    std::vector<fs::path> others;
    for (fs::directory_iterator found(folder, error); !error && found != fs::directory_iterator(); found.increment(error)) {
        const std::string name = found->path().filename().string();
        if (name.starts_with("rank-") && name.ends_with(".safetensors") && !names.contains(name)) others.push_back(found->path());
    }
    for (const fs::path& other : others) fs::remove(other, error);
    replace_file((fs::path(folder) / "manifest.json").string(), manifest_text(manifest), purpose);
    sync_folder(fs::path(folder).parent_path().string(), purpose);
}

}  // namespace mgplan::runtime
