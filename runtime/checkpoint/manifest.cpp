#include "runtime/checkpoint/manifest.hpp"

#include <algorithm>
#include <limits>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json/model_json.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/crc32c.hpp"
#include "runtime/data/file_bytes.hpp"

namespace mgplan::runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostManifestBytes = 8 << 20;
constexpr std::int64_t kMostFileBytes = std::int64_t{1} << 44;  ///< their sum over all files of a manifest stays inside 64 bits
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string shown(const Json& value) {
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

}  // namespace

TrainingIdentity identity_of(const model::TrainingTask& task, const Sequences& data) {
    TrainingIdentity identity;
    identity.model = model_to_json(task.model).dump();
    identity.global_batch = task.batch.global_batch;
    identity.sequence = task.batch.sequence;
    identity.precision = precision_text(task.training);
    identity.optimizer = to_string(task.training.megatron.optimizer);
    identity.dropout_seed = task.dropout_seed;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(task.batch.sequence + 1));
    for (std::int64_t sequence = 0; sequence < std::min<std::int64_t>(task.batch.global_batch, 4); ++sequence) {
        data.read(sequence, tokens);
        identity.data_checksum = crc32c(std::as_bytes(std::span(tokens)), identity.data_checksum);
    }
    return identity;
}

std::int64_t Manifest::bytes() const {
    std::int64_t sum = 0;
    for (const RankFile& file : files) sum += file.bytes;
    return sum;
}

std::vector<std::string> differences(const TrainingIdentity& saved, const TrainingIdentity& now) {
    std::vector<std::string> found;
    const Json saved_model = Json::parse(saved.model), model = Json::parse(now.model);
    // A preset may be called otherwise one day.
    for (const auto& [field, value] : saved_model.items()) {
        const Json here = model.contains(field) ? model[field] : Json();
        if (field != "name" && here != value) found.push_back(fmt::format("model.{} = {}, here {}", field, shown(value), shown(here)));
    }
    for (const auto& [field, value] : model.items()) {
        if (!saved_model.contains(field)) found.push_back(fmt::format("no model.{}, here {}", field, shown(value)));
    }
    if (saved.global_batch != now.global_batch)
        found.push_back(fmt::format("global batch = {}, here {}", saved.global_batch, now.global_batch));
    if (saved.sequence != now.sequence) found.push_back(fmt::format("sequence = {}, here {}", saved.sequence, now.sequence));
    if (saved.precision != now.precision) found.push_back(fmt::format("precision = {}, here {}", saved.precision, now.precision));
    if (saved.optimizer != now.optimizer) found.push_back(fmt::format("optimizer = {}, here {}", saved.optimizer, now.optimizer));
    if (saved.dropout_seed != now.dropout_seed)
        found.push_back(fmt::format("dropout seed = {}, here {} (--seed)", saved.dropout_seed, now.dropout_seed));
    if (saved.data_checksum != now.data_checksum && saved.sequence == now.sequence && saved.global_batch == now.global_batch)
        found.emplace_back("other tokens in its first sequences (--data, --seed)");
    return found;
}

std::string manifest_text(const Manifest& manifest) {
    Json files = Json::array();
    for (const RankFile& file : manifest.files)
        files.push_back(Json{{"name", file.name}, {"bytes", file.bytes}, {"header_crc32c", checksum_text(file.checksum)}});
    const TrainingIdentity& identity = manifest.identity;
    Json json{{"mgplan_checkpoint", kCheckpointVersion},
              {"steps", manifest.position.steps},
              {"updates", manifest.position.updates},
              {"layout", manifest.layout},
              {"precision", identity.precision},
              {"global_batch", identity.global_batch},
              {"sequence", identity.sequence},
              {"dropout_seed", identity.dropout_seed},
              {"data_crc32c", checksum_text(identity.data_checksum)},
              {"model", Json::parse(identity.model)},
              {"files", files}};
    // Left out for Adam, whose checkpoints are older than other optimizers.
    if (identity.optimizer != TrainingIdentity{}.optimizer) json["optimizer"] = identity.optimizer;
    json["crc32c"] = checksum_text(crc32c(json.dump(-1, ' ', true)));
    return json.dump(1, ' ', true) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
    Json json = parse_json(text, where);
    if (!json.is_object() || !json.contains("mgplan_checkpoint"))
        throw ConfigError(fmt::format("{} is no manifest of a checkpoint: it has no field mgplan_checkpoint", where));
    if (json["mgplan_checkpoint"] != kCheckpointVersion) {
        throw ConfigError(fmt::format("{}: mgplan_checkpoint = {} is another version of the format than {}, which this mgplan reads", where,
                                      shown(json["mgplan_checkpoint"]), kCheckpointVersion));
    }
    Problems problems;
    const auto checksum_of = [&](JsonReader& reader, std::string_view field) {
        const auto checksum = parse_checksum(reader.text(field));
        if (!checksum) problems.add("{}.{} is no checksum: eight hexadecimal digits", reader.where(), field);
        return checksum.value_or(0);
    };
    JsonReader reader(json, where, problems);
    const std::uint32_t own = checksum_of(reader, "crc32c");
    Json covered = json;
    covered.erase("crc32c");
    problems.throw_if_any();
    if (crc32c(covered.dump(-1, ' ', true, Json::error_handler_t::replace)) != own) {
        throw ConfigError(fmt::format("{}: its checksum is not that of its contents: it was damaged or changed", where));
    }
    Manifest manifest;
    reader.ignore("mgplan_checkpoint");
    manifest.position.steps = reader.integer("steps", 0, kMost);
    manifest.position.updates = reader.integer("updates", 0, std::max<std::int64_t>(manifest.position.steps, 0));
    manifest.layout = reader.text("layout");
    manifest.identity.precision = reader.text("precision");
    // Older manifests do not name the recipe: current scaling was the first to run.
    if (manifest.identity.precision == "fp8") manifest.identity.precision = "fp8-current";
    if (reader.has("optimizer")) manifest.identity.optimizer = reader.text("optimizer");
    manifest.identity.global_batch = reader.integer("global_batch", 1, kMost);
    manifest.identity.sequence = reader.integer("sequence", 1, kMost);
    const std::int64_t seed = reader.integer("dropout_seed", 0, kMost);
    manifest.identity.dropout_seed = static_cast<std::uint64_t>(seed);
    manifest.identity.data_checksum = checksum_of(reader, "data_crc32c");
    if (const Json* model = reader.member("model"); model != nullptr && model->is_object())
        manifest.identity.model = model->dump(-1, ' ', true, Json::error_handler_t::replace);
    else
        problems.add("{}.model is no object", where);
    const Json* files = reader.member("files");
    if (files == nullptr || !files->is_array() || files->empty()) problems.add("{}.files is no list of files", where);
    for (std::size_t i = 0; files != nullptr && files->is_array() && i < files->size() && problems.empty(); ++i) {
        const std::string at = fmt::format("{}.files[{}]", where, i);
        if (!(*files)[i].is_object()) {
            problems.add("{} is no object", at);
            break;
        }
        JsonReader file((*files)[i], at, problems);
        RankFile entry;
        entry.name = file.text("name");
        if (!is_name_in_folder(entry.name)) problems.add("{}.name is no file's name without a folder", at);
        entry.bytes = file.integer("bytes", 0, kMostFileBytes);
        entry.checksum = checksum_of(file, "header_crc32c");
        file.finish();
        manifest.files.push_back(std::move(entry));
    }
    reader.finish();
    problems.throw_if_any();
    return manifest;
}

Manifest read_manifest(const std::string& path) {
    const FileBytes file(path, "manifest");
    if (file.size() > kMostManifestBytes)
        throw ConfigError(
            fmt::format("{} has {} bytes, more than a manifest's {}; it is something else", path, file.size(), kMostManifestBytes));
    std::string text(static_cast<std::size_t>(file.size()), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return parse_manifest(text, path);
}

}  // namespace mgplan::runtime
