#include "readers.hpp"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/parameter_file.hpp"
#include "formats/hugging_face/hugging_face.hpp"
#include "formats/megatron/bridge_config.hpp"
#include "formats/megatron/bridge_launch.hpp"
#include "formats/megatron/launch_record.hpp"
#include "formats/megatron/logged_arguments.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/megatron_log.hpp"
#include "formats/recognise/recognise.hpp"
#include "formats/trainer_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/json/model_json.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/model/routing_skew.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/training/packed_lengths.hpp"
#include "runtime/checkpoint/crc32c.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/slice_text.hpp"
#include "runtime/data/indexed_dataset.hpp"

namespace mgplan::fuzz {
namespace {

constexpr std::size_t kMostMessageBytes = 1U << 20U;

void expect(bool truth, const char* what) {
    if (!truth) throw std::logic_error(what);
}

/// A value that was read is the same once it was written and read again.
template <class Value, class Write, class Read>
void expect_same_again(const Value& value, Write write, Read read) {
    expect(write(read(write(value), "again")) == write(value), "a value changed when it was written and read");
}

void read_hugging_face(std::string_view bytes) {
    const auto job = formats::read_hugging_face(parse_json(bytes, "input"), "input", "input");
    expect_same_again(job.model, model_to_json, model_from_json);
}

void read_model(std::string_view bytes) {
    expect_same_again(model_from_json(parse_json(bytes, "input"), "input"), model_to_json, model_from_json);
}

void read_megatron_arguments(std::string_view bytes) {
    const auto job = formats::read_megatron_text(bytes, "input");
    expect_same_again(job.model, model_to_json, model_from_json);
}

/// A script with arguments and variables from outside.
void read_launch_script(std::string_view bytes) {
    formats::ScriptInputs inputs{std::vector<std::string>{"8b", "--tp", "2"}, {}};
    // Those that a script does not name are refused.
    if (bytes.find("$TP") != std::string_view::npos) inputs.variables.emplace_back("TP", "4");
    if (bytes.find("$ARGS") != std::string_view::npos) inputs.variables.emplace_back("ARGS", "--bf16 --lr 1");
    const formats::MegatronSurroundings surroundings{.script = std::move(inputs)};
    const auto job = formats::read_megatron_text(bytes, "input", surroundings);
    expect_same_again(job.model, model_to_json, model_from_json);
}

void read_bridge_config(std::string_view bytes) {
    const auto job = formats::read_bridge_config(bytes, "input");
    expect_same_again(job.model, model_to_json, model_from_json);
}

/// A script that starts a recipe of Megatron-Bridge.
void read_bridge_launch(std::string_view bytes) {
    const formats::ScriptInputs inputs{.arguments = std::nullopt, .variables = {}, .model_is_given = true};
    const auto launch = formats::read_bridge_launch(formats::argument_words(bytes, "input", "", inputs).words, "input");
    if (!launch) throw ConfigError("names no recipe");
    expect(!launch->recipe.empty(), "a launch without a recipe");
    expect(launch->overrides.size() < 20000, "overrides without bound");
}

void read_launch_record(std::string_view bytes) {
    const auto record = formats::read_launch_record(bytes, "input");
    expect(formats::read_launch_record(formats::launch_record_json(record), "again") == record,
           "a record changed when it was written and read");
    for (const auto& launch : formats::training_launches(record))
        static_cast<void>(formats::read_traced_job(record, "input", launch.number));
}

void read_megatron_log(std::string_view bytes) {
    if (const auto arguments = formats::logged_arguments(bytes, "input")) expect(arguments->words.size() < 20000, "words without bound");
    const auto log = formats::read_megatron_log(bytes, "input");
    for (const auto& timer : log.timers) expect(timer.lines > 0 && timer.least <= timer.most, "a timer whose least is above its most");
    const auto steady = formats::steady_iterations(log, 256, "input");
    expect(steady.lines > 0 && steady.median_seconds > 0, "steady iterations without a time");
}

/// A text of a known framework is refused in one line.
void read_recognised(std::string_view bytes) {
    const auto seen = formats::recognise(bytes);
    if (!seen) throw ConfigError("of no known framework");
    const std::string line = formats::refusal_of(*seen, "input");
    expect(line.find(seen->framework) != std::string::npos, "a refusal without the framework");
    expect(line.size() < 2048, "a refusal without bound");
}

/// Settings of programs on Megatron-core, as a file of YAML and as a command.
void read_trainer_settings(std::string_view bytes) {
    const formats::MegatronSurroundings surroundings{.vocab = 50432, .world = 16};
    bool read = false;
    for (const char* name : {"input.yaml", "input.sh"}) {
        try {
            const auto found = formats::read_trainer_text(std::string(bytes), name, surroundings);
            if (!found) continue;
            found->problems.throw_if_any();
            read = true;
            expect_same_again(found->job.model, model_to_json, model_from_json);
        } catch (const ConfigError&) {
            if (std::string_view(name).ends_with(".sh") && !read) throw;
        }
    }
    if (!read) throw ConfigError("of no program that is read");
}

void read_pipeline_layout(std::string_view bytes) {
    const auto stages = parse_pipeline_layout(bytes);
    expect(parse_pipeline_layout(compact_pipeline_layout(stages)) == stages, "a layout string changed when it was written shorter");
}

void read_plan(std::string_view bytes) {
    expect_same_again(plan_from_json(parse_json(bytes, "input"), "input"), plan_to_json, plan_from_json);
}

void read_cluster(std::string_view bytes) {
    expect_same_again(cluster_from_json(parse_json(bytes, "input"), "input"), cluster_to_json, cluster_from_json);
}

/// What stands behind the name of a preset: ",key=value…".
void read_cluster_changes(std::string_view bytes) {
    expect_same_again(load_cluster(fmt::format("dgx-h100,{}", bytes)), cluster_to_json, cluster_from_json);
}

/// The name of a kind, or a histogram.
void read_routing_skew(std::string_view bytes) {
    if (const auto named = parse_routing_skew(bytes)) {
        expect_same_again(*named, routing_skew_to_json, routing_skew_from_json);
        return;
    }
    expect_same_again(routing_histogram(parse_json(bytes, "input"), "input"), routing_skew_to_json, routing_skew_from_json);
}

void read_packed_lengths(std::string_view bytes) {
    expect_same_again(packed_lengths_from_json(parse_json(bytes, "input"), "input"), packed_lengths_to_json, packed_lengths_from_json);
}

void read_parameters(std::string_view bytes) {
    const auto read = cli::read_parameter_list(bytes, "input");
    expect(read.names.size() == read.parameters.size(), "names and parameters differ in number");
}

/// A header's JSON and, in front of it, four bytes for the number of bytes behind it.
void read_safetensors(std::string_view bytes) {
    std::uint32_t values = 0;
    if (bytes.size() < sizeof values) throw ConfigError("no file");
    std::memcpy(&values, bytes.data(), sizeof values);
    const auto header = runtime::parse_safetensors(bytes.substr(sizeof values), values, "input");
    const std::string again = runtime::safetensors_head(header);
    expect(runtime::parse_safetensors(std::string_view(again).substr(8), values, "again") == header,
           "a header changed when it was written and read");
}

/// As it is, and with the checksum put right: no fuzzer finds one.
void read_checkpoint_manifest(std::string_view bytes) {
    try {
        static_cast<void>(runtime::parse_manifest(bytes, "input"));
    } catch (const ConfigError&) {
        // Mostly for its checksum.
    }
    auto json = parse_json(bytes, "input");
    if (json.is_object()) {
        json.erase("crc32c");
        const auto checksum = runtime::crc32c(json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace));
        json["crc32c"] = runtime::checksum_text(checksum);
    }
    const auto manifest = runtime::parse_manifest(json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace), "input");
    expect(manifest.bytes() >= 0, "a sum of sizes that overflows");
    expect(runtime::differences(manifest.identity, manifest.identity).empty(), "a training differs from itself");
    runtime::TrainingIdentity other;
    other.model = R"({"name": "other", "layers": 1, "heads": 2})";
    expect(!runtime::differences(manifest.identity, other).empty(), "another training does not differ");
    other = manifest.identity;
    other.data_checksum ^= 1U;
    expect(runtime::differences(manifest.identity, other).size() == 1, "other data are not one difference");
    const auto text = runtime::manifest_text(manifest);
    expect(runtime::manifest_text(runtime::parse_manifest(text, "again")) == text, "a manifest changed when it was written and read");
}

void read_checkpoint_slice(std::string_view bytes) {
    const auto slice = runtime::parse_slice(bytes, "tensor", "input");
    const auto text = runtime::slice_text(slice);
    expect(runtime::slice_text(runtime::parse_slice(text, "tensor", "again")) == text, "a slice changed when it was written and read");
}

/// A pair of files that is there as long as this lives.
class DatasetFiles {
public:
    DatasetFiles(std::string_view index, std::string_view data) : prefix_(fmt::format("/tmp/mgplan_fuzz_{}", ::getpid())) {
        std::ofstream(prefix_ + ".idx", std::ios::binary).write(index.data(), static_cast<std::streamsize>(index.size()));
        std::ofstream(prefix_ + ".bin", std::ios::binary).write(data.data(), static_cast<std::streamsize>(data.size()));
    }
    ~DatasetFiles() {
        std::remove((prefix_ + ".idx").c_str());
        std::remove((prefix_ + ".bin").c_str());
    }
    DatasetFiles(const DatasetFiles&) = delete;
    DatasetFiles& operator=(const DatasetFiles&) = delete;
    [[nodiscard]] const std::string& prefix() const { return prefix_; }

private:
    std::string prefix_;
};

/// The first two bytes: how long the .idx is; behind it comes the .bin.
void read_indexed_dataset(std::string_view bytes) {
    std::uint16_t index_size = 0;
    if (bytes.size() < sizeof index_size) throw ConfigError("no dataset");
    std::memcpy(&index_size, bytes.data(), sizeof index_size);
    bytes.remove_prefix(sizeof index_size);
    const std::string_view index = bytes.substr(0, index_size);
    const DatasetFiles files(index, bytes.substr(index.size()));
    const runtime::IndexedDataset dataset(files.prefix(), 256);
    const auto tokens = dataset.tokens();
    expect(tokens && *tokens >= 0, "a file without an end");
    std::array<std::int32_t, 64> read{};
    for (std::int64_t first = 0; first < *tokens; first += std::ssize(read)) {
        const auto count = static_cast<std::size_t>(std::min<std::int64_t>(*tokens - first, std::ssize(read)));
        dataset.read(first, std::span(read).first(count));
        for (const auto id : std::span(read).first(count)) expect(id >= 0 && id < 256, "an id outside the vocabulary");
    }
}

constexpr std::array kReaders{
    Reader{"bridge_config", read_bridge_config},
    Reader{"bridge_launch", read_bridge_launch},
    Reader{"checkpoint_manifest", read_checkpoint_manifest},
    Reader{"checkpoint_slice", read_checkpoint_slice},
    Reader{"cluster", read_cluster},
    Reader{"cluster_changes", read_cluster_changes},
    Reader{"hugging_face", read_hugging_face},
    Reader{"indexed_dataset", read_indexed_dataset},
    Reader{"launch_record", read_launch_record},
    Reader{"launch_script", read_launch_script},
    Reader{"megatron_arguments", read_megatron_arguments},
    Reader{"megatron_log", read_megatron_log},
    Reader{"model", read_model},
    Reader{"packed_lengths", read_packed_lengths},
    Reader{"parameters", read_parameters},
    Reader{"pipeline_layout", read_pipeline_layout},
    Reader{"plan", read_plan},
    Reader{"recognise", read_recognised},
    Reader{"routing_skew", read_routing_skew},
    Reader{"safetensors", read_safetensors},
    Reader{"trainer_settings", read_trainer_settings},
};

}  // namespace

std::span<const Reader> readers() {
    return kReaders;
}

bool takes(const Reader& reader, std::string_view bytes) {
    try {
        reader.read(bytes);
        return true;
    } catch (const ConfigError& error) {
        std::size_t length = 0;
        for (const auto& problem : error.problems()) {
            expect(!problem.empty(), "a refusal without a message");
            length += problem.size();
        }
        expect(length > 0, "a refusal without a message");
        expect(length <= kMostMessageBytes, "messages without bound");
        return false;
    } catch (const std::logic_error&) {
        throw;
    } catch (const std::exception& error) {
        throw std::logic_error(fmt::format("{} threw another exception than ConfigError: {}", reader.name, error.what()));
    }
}

}  // namespace mgplan::fuzz
