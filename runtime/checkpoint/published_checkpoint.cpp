#include "runtime/checkpoint/published_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "model/device/device.hpp"
#include "plan/parameters/whole_parameter.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "runtime/bf16.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/save_state.hpp"
#include "runtime/data/file_bytes.hpp"

namespace mgplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostIndexBytes = std::int64_t{64} << 20;

/// An IEEE half: 5 bits of exponent, 10 of fraction.
double from_half(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double value = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                         : exponent == 0 ? std::ldexp(fraction, -24)
                                         : std::ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000U) != 0 ? -value : value;
}

/// Converts `count` values, `step` values apart, and adds `added` to each; returns true if all are finite.
template <class Word, class Element, class ToDouble>
bool convert(const std::byte* bytes, std::int64_t step, std::int64_t count, double added, Element* to, ToDouble to_double) {
    bool finite = true;
    for (std::int64_t i = 0; i < count; ++i) {
        Word word;
        std::memcpy(&word, bytes + i * step * std::int64_t{sizeof word}, sizeof word);
        const double value = to_double(word);
        finite &= std::isfinite(value);
        to[i] = static_cast<Element>(value + added);
    }
    return finite;
}

template <class Element>
bool convert(Dtype dtype, const std::byte* bytes, std::int64_t step, std::int64_t count, double added, Element* to) {
    const auto wide = [](auto word) { return static_cast<double>(word); };
    switch (dtype) {
        case Dtype::fp64:
            return convert<double>(bytes, step, count, added, to, wide);
        case Dtype::fp32:
            return convert<float>(bytes, step, count, added, to, wide);
        case Dtype::bf16:
            return convert<Bf16>(bytes, step, count, added, to, [](Bf16 word) { return static_cast<double>(static_cast<float>(word)); });
        default:
            return convert<std::uint16_t>(bytes, step, count, added, to, from_half);
    }
}

bool is_number_type(Dtype dtype) {
    return dtype == Dtype::fp64 || dtype == Dtype::fp32 || dtype == Dtype::bf16 || dtype == Dtype::fp16;
}

/// Returns the files that an index names, without folders.
std::vector<std::string> indexed_files(const std::string& index) {
    const FileBytes file(index, "index of weights");
    if (file.size() > kMostIndexBytes)
        throw ConfigError(fmt::format("{} has {} bytes, of {} at most", index, file.size(), kMostIndexBytes));
    std::string text(static_cast<std::size_t>(file.size()), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    const auto json = parse_sorted_json(text, index);
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
        throw ConfigError(fmt::format("{} is no index of weights: it holds no object weight_map", index));
    std::set<std::string> names;
    for (const auto& [tensor, name] : json["weight_map"].items()) {
        const std::string text_of = name.is_string() ? name.get<std::string>() : "";
        if (!is_name_in_folder(text_of))
            throw ConfigError(fmt::format("{}: the file of tensor '{}' is no name of a file next to it", index, tensor.substr(0, 200)));
        names.insert(text_of);
    }
    return {names.begin(), names.end()};
}

std::vector<std::string> files_of(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return {path};
    const fs::path folder(path);
    if (fs::exists(folder / "model.safetensors", error)) return {(folder / "model.safetensors").string()};
    const fs::path index = folder / "model.safetensors.index.json";
    if (!fs::exists(index, error))
        throw ConfigError(fmt::format("{} holds neither model.safetensors nor model.safetensors.index.json", path));
    std::vector<std::string> files;
    for (const std::string& name : indexed_files(index.string())) files.push_back((folder / name).string());
    return files;
}

/// Returns true if the tensor, by its full name or without the common prefix, is one that models of the type do not use.
bool is_unused(const PublishedWeights& weights, const std::string& name) {
    const auto ends = [&](const std::string& ending) { return name.ends_with(ending); };
    const auto begins = [&](const std::string& beginning) {
        return name.starts_with(beginning) || (weights.base_prefix + name).starts_with(beginning);
    };
    return std::any_of(weights.unused_endings.begin(), weights.unused_endings.end(), ends) ||
           std::any_of(weights.unused_beginnings.begin(), weights.unused_beginnings.end(), begins);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("({})", fmt::join(shape, ", "));
}

/// "a, b, c and 7 more".
std::string some_of(const std::vector<std::string>& names) {
    constexpr std::size_t kShown = 3;
    const std::vector<std::string> shown(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown)));
    std::string text = fmt::format("{}", fmt::join(shown, ", "));
    if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
    return text;
}

}  // namespace

std::shared_ptr<const PublishedCheckpoint> PublishedCheckpoint::open(const std::string& path, PublishedWeights weights) {
    auto checkpoint = std::make_shared<PublishedCheckpoint>();
    checkpoint->path_ = path;
    checkpoint->files_ = files_of(path);
    checkpoint->places_.resize(weights.tensors.size());
    std::map<std::string_view, std::size_t> wanted;
    for (std::size_t i = 0; i < weights.tensors.size(); ++i) wanted[weights.tensors[i].name] = i;
    std::vector<bool> found(weights.tensors.size());
    std::vector<std::string> foreign;
    Problems problems;
    for (std::size_t i = 0; i < checkpoint->files_.size(); ++i) {
        const FileBytes file(checkpoint->files_[i], "weights");
        const std::string head = read_safetensors_head(file);
        const auto begin = std::ssize(head);
        const auto header = parse_safetensors(std::string_view(head).substr(sizeof(std::uint64_t)), file.size() - begin, file.path());
        for (const SafetensorsTensor& tensor : header.tensors) {
            auto known = wanted.find(tensor.name);
            if (known == wanted.end()) known = wanted.find(weights.base_prefix + tensor.name);
            if (known == wanted.end()) {
                if (!is_unused(weights, tensor.name)) foreign.push_back(tensor.name.substr(0, 200));
                continue;
            }
            const PublishedTensor& expected = weights.tensors[known->second];
            found[known->second] = true;
            checkpoint->places_[known->second] = {i, tensor.dtype, begin + tensor.begin};
            if (tensor.shape != expected.shape)
                problems.add("{}: tensor '{}' has the shape {}, and the model's config makes {} of it; give the config of these weights",
                             file.path(), tensor.name, shape_text(tensor.shape), shape_text(expected.shape));
            if (!is_number_type(tensor.dtype)) problems.add("{}: tensor '{}' holds whole numbers, not weights", file.path(), tensor.name);
        }
    }
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (!found[i]) missing.push_back(weights.tensors[i].name);
    }
    if (!missing.empty()) problems.add("{}: tensors of the model are missing: {}", path, some_of(missing));
    if (!foreign.empty())
        problems.add("{}: tensors belong to no parameter of the model: {}; give the config of these weights", path, some_of(foreign));
    problems.throw_if_any();
    checkpoint->weights_ = std::move(weights);
    return checkpoint;
}

/// Values of one checkpoint, the tensors read last kept: parameters that share one follow each other.
class PublishedReader {
public:
    explicit PublishedReader(const PublishedCheckpoint& checkpoint) : checkpoint_(checkpoint) {
        for (const PublishedParameter& parameter : checkpoint.weights_.parameters) by_name_[parameter.name] = &parameter;
    }

    [[nodiscard]] const PublishedParameter& parameter(std::string_view name) const {
        const auto found = by_name_.find(name);
        MGPLAN_ASSERT(found != by_name_.end(), "the checkpoint holds every parameter of the model");
        return *found->second;
    }

    /// Elements [index, index + count) of the whole parameter.
    template <class Element>
    void read_values(const PublishedParameter& parameter, std::int64_t index, std::int64_t count, Element* to) {
        while (count > 0) {
            const std::int64_t row = index / parameter.columns, column = index % parameter.columns;
            const auto next = std::upper_bound(parameter.pieces.begin(), parameter.pieces.end(), row,
                                               [](std::int64_t at, const PublishedRows& rows) { return at < rows.first_row; });
            const PublishedRows& rows = *std::prev(next);
            const Kept& kept = read(rows.tensor);
            const std::int64_t element = rows.begin + (row - rows.first_row) * rows.row_step + column * rows.column_step;
            const std::int64_t here = std::min(count, parameter.columns - column);
            if (!convert(kept.dtype, kept.bytes.data() + element * bytes_of(kept.dtype), rows.column_step, here, parameter.added, to))
                throw ConfigError(fmt::format("{}: tensor '{}' holds values that are not finite", checkpoint_.path_,
                                              checkpoint_.weights_.tensors[rows.tensor].name));
            index += here;
            to += here;
            count -= here;
        }
    }

private:
    struct Kept {
        std::optional<std::size_t> tensor;
        Dtype dtype = Dtype::fp32;
        std::vector<std::byte> bytes;
    };

    const Kept& read(std::size_t tensor) {
        for (const Kept& kept : kept_) {
            if (kept.tensor == tensor) return kept;
        }
        const auto& place = checkpoint_.places_[tensor];
        if (!file_ || open_ != place.file) file_.emplace(checkpoint_.files_[place.file], "weights");
        open_ = place.file;
        Kept& kept = kept_[next_];
        next_ = (next_ + 1) % kept_.size();
        kept.tensor.reset();
        kept.dtype = place.dtype;
        kept.bytes.resize(static_cast<std::size_t>(checkpoint_.weights_.tensors[tensor].elements() * bytes_of(place.dtype)));
        file_->read(place.at, kept.bytes);
        kept.tensor = tensor;
        return kept;
    }

    const PublishedCheckpoint& checkpoint_;
    std::map<std::string_view, const PublishedParameter*> by_name_;
    std::optional<FileBytes> file_;
    std::size_t open_ = 0;
    std::array<Kept, 3> kept_;  ///< a packed projection's rows take turns between q, k and v
    std::size_t next_ = 0;
};

namespace {

template <class Element>
void load_piece(PublishedReader& reader, const PublishedParameter* parameter, const model::StatePiece& piece) {
    std::vector<Element> staged;
    for (std::int64_t begin = 0; begin < piece.values.elements(); begin += kSliceElements) {
        const std::int64_t end = std::min(begin + kSliceElements, piece.values.elements());
        staged.assign(static_cast<std::size_t>(end - begin), Element(0));
        if (parameter != nullptr) {
            for (const WholeRun& run : runs_in_whole(piece.shard, piece.begin + begin, piece.begin + end)) {
                reader.read_values(*parameter, run.in_whole, run.size, staged.data() + (run.in_shard - piece.begin - begin));
            }
        }
        piece.values.device().write(piece.values.slice(begin, end), staged.data());
    }
}

}  // namespace

void PublishedCheckpoint::load(std::span<const model::StatePiece> pieces) const {
    PublishedReader reader(*this);
    for (const model::StatePiece& piece : pieces) {
        const std::string_view name = piece.name;
        const bool is_parameter = piece.kind == model::StateKind::parameter;
        const PublishedParameter* const parameter =
            is_parameter ? &reader.parameter(name.ends_with("/main") ? name.substr(0, name.size() - 5) : name) : nullptr;
        switch (piece.values.dtype()) {
            case Dtype::fp64:
                load_piece<double>(reader, parameter, piece);
                break;
            case Dtype::bf16:
                MGPLAN_ASSERT(!is_parameter, "main parameters are fp32 or fp64");
                load_piece<std::uint16_t>(reader, nullptr, piece);
                break;
            default:
                load_piece<float>(reader, parameter, piece);
        }
    }
}

}  // namespace mgplan::runtime
