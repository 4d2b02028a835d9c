#pragma once
// The manifest of a checkpoint: its training, its steps so far, and its files. It is written when all of them are complete, so
// that a folder with a manifest is a complete checkpoint.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/training/rank_trainer.hpp"
#include "runtime/data/sequences.hpp"

namespace mgplan::runtime {

/// Version of the folder's format; a reader refuses any other.
inline constexpr int kCheckpointVersion = 1;

/// Settings that must be equal when a training resumes, under any layout: a difference would silently train something else.
struct TrainingIdentity {
    std::string model;  ///< JSON as model_to_json() writes it
    std::int64_t global_batch = 0;
    std::int64_t sequence = 0;
    std::string precision;  ///< precision_text(): fp8 by its recipe
    std::string optimizer = "adam";
    std::uint64_t dropout_seed = 0;
    std::uint32_t data_checksum = 0;  ///< of the first tokens of the run: of data and its order
};
[[nodiscard]] TrainingIdentity identity_of(const model::TrainingTask& task, const Sequences& data);

struct RankFile {
    std::string name;            ///< in the manifest's folder
    std::int64_t bytes = 0;      ///< all of it
    std::uint32_t checksum = 0;  ///< CRC-32C of length field and header, which holds those of the values
    bool operator==(const RankFile&) const = default;
};

struct Manifest {
    TrainingIdentity identity;
    model::TrainingPosition position;
    std::string layout;           ///< in words, for people
    std::vector<RankFile> files;  ///< by rank
    [[nodiscard]] std::int64_t bytes() const;
};

/// Names the settings in which the resumed training differs from the saved one; empty if none.
[[nodiscard]] std::vector<std::string> differences(const TrainingIdentity& saved, const TrainingIdentity& now);

/// JSON with its own checksum in the last field.
[[nodiscard]] std::string manifest_text(const Manifest& manifest);
/// Reads it back; throws ConfigError naming `where` and every problem.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& where);
/// The same from a file of at most 8 MiB.
[[nodiscard]] Manifest read_manifest(const std::string& path);

}  // namespace mgplan::runtime
