#include "runtime/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan::runtime {
namespace {

using SortedJson = nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::array<std::pair<Dtype, std::string_view>, 5> kDtypes{
    {{Dtype::fp32, "F32"}, {Dtype::fp64, "F64"}, {Dtype::bf16, "BF16"}, {Dtype::fp16, "F16"}, {Dtype::int32, "I32"}}};

[[noreturn]] void refuse(const std::string& where, const std::string& reason) {
    throw ConfigError(fmt::format("{} is no safetensors file: {}", where, reason));
}

std::int64_t whole_number(const SortedJson& value, const std::string& where, const std::string& name, std::string_view what) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max());
    if (!fits || value.get<std::int64_t>() < 0) refuse(where, fmt::format("tensor '{}': {} must be whole numbers from 0", name, what));
    return value.get<std::int64_t>();
}

SafetensorsTensor tensor_of(const std::string& name, const SortedJson& json, std::int64_t values, const std::string& where) {
    SafetensorsTensor tensor;
    tensor.name = name;
    const std::string shown = name.substr(0, 200);
    const auto member = [&](const char* field) -> const SortedJson& {
        if (!json.is_object() || !json.contains(field)) refuse(where, fmt::format("tensor '{}' has no {}", shown, field));
        return json[field];
    };
    const SortedJson& dtype = member("dtype");
    const auto known = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& each) {
        return dtype.is_string() && dtype.get_ref<const std::string&>() == each.second;
    });
    if (known == kDtypes.end())
        refuse(where, fmt::format("tensor '{}' is of a type that is not read; use F64, F32, BF16, F16 or I32", shown));
    tensor.dtype = known->first;
    const SortedJson& shape = member("shape");
    const SortedJson& offsets = member("data_offsets");
    if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2)
        refuse(where, fmt::format("tensor '{}' needs a list of sizes as shape and two data_offsets", shown));
    tensor.begin = whole_number(offsets[0], where, shown, "data_offsets");
    tensor.end = whole_number(offsets[1], where, shown, "data_offsets");
    if (tensor.begin > tensor.end || tensor.end > values)
        refuse(where,
               fmt::format("tensor '{}' lies at bytes {} to {} of {}; the file may be cut off", shown, tensor.begin, tensor.end, values));
    std::int64_t elements = 1;
    for (const SortedJson& size : shape) {
        tensor.shape.push_back(whole_number(size, where, shown, "sizes"));
        if (__builtin_mul_overflow(elements, tensor.shape.back(), &elements))
            refuse(where, fmt::format("tensor '{}' has too many elements", shown));
    }
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(bytes_of(tensor.dtype)), &bytes) || bytes != tensor.end - tensor.begin)
        refuse(where, fmt::format("tensor '{}' has {} elements in {} bytes", shown, elements, tensor.end - tensor.begin));
    return tensor;
}

}  // namespace

std::optional<std::string_view> safetensors_dtype(Dtype dtype) {
    for (const auto& [each, name] : kDtypes) {
        if (each == dtype) return name;
    }
    return std::nullopt;
}

std::string safetensors_head(const SafetensorsHeader& header, std::size_t alignment) {
    SortedJson json = SortedJson::object();
    if (!header.metadata.empty()) {
        SortedJson& metadata = json["__metadata__"] = SortedJson::object();
        for (const auto& [key, text] : header.metadata) metadata[key] = text;
    }
    for (const SafetensorsTensor& tensor : header.tensors) {
        const auto dtype = safetensors_dtype(tensor.dtype);
        MGPLAN_ASSERT(dtype, "the format has this type");
        json[tensor.name] = SortedJson{{"dtype", *dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
    }
    std::string text = json.dump();
    const std::size_t unfilled = kLengthBytes + text.size();
    text.resize((unfilled + alignment - 1) / alignment * alignment - kLengthBytes, ' ');
    std::string head(kLengthBytes, '\0');
    for (std::size_t i = 0; i < head.size(); ++i) head[i] = static_cast<char>(text.size() >> (8 * i) & 0xFFU);
    return head + text;
}

SafetensorsHeader parse_safetensors(std::string_view json, std::int64_t values, const std::string& where) {
    const SortedJson parsed = parse_sorted_json(json, fmt::format("header of {}", where));
    if (!parsed.is_object()) refuse(where, "its header is no object");
    SafetensorsHeader header;
    for (const auto& [name, value] : parsed.items()) {
        if (name != "__metadata__") {
            header.tensors.push_back(tensor_of(name, value, values, where));
            continue;
        }
        if (!value.is_object()) refuse(where, "__metadata__ is no object");
        for (const auto& [key, text] : value.items()) {
            if (!text.is_string()) refuse(where, "__metadata__ holds something else than texts");
            header.metadata[key] = text.get<std::string>();
        }
    }
    std::stable_sort(header.tensors.begin(), header.tensors.end(),
                     [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    std::int64_t at = 0;
    for (const SafetensorsTensor& tensor : header.tensors) {
        if (tensor.begin != at) refuse(where, fmt::format("between bytes {} and {} there is a hole or an overlap", at, tensor.begin));
        at = tensor.end;
    }
    if (at != values) refuse(where, fmt::format("its tensors end at byte {} of {}", at, values));
    return header;
}

std::string read_safetensors_head(const FileBytes& file) {
    if (file.size() < kLengthBytes) refuse(file.path(), fmt::format("it has {} bytes, and its length field alone takes 8", file.size()));
    std::string head(kLengthBytes, '\0');
    file.read(0, std::as_writable_bytes(std::span(head)));
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < head.size(); ++i) length |= std::uint64_t{static_cast<unsigned char>(head[i])} << (8 * i);
    if (length > static_cast<std::uint64_t>(std::min(kMostHeaderBytes, file.size() - kLengthBytes)))
        refuse(file.path(), fmt::format("its header is said to take {} bytes, of {} at most", length,
                                        std::min(kMostHeaderBytes, file.size() - kLengthBytes)));
    head.resize(static_cast<std::size_t>(kLengthBytes) + length);
    file.read(kLengthBytes, std::as_writable_bytes(std::span(head)).subspan(kLengthBytes));
    return head;
}

}  // namespace mgplan::runtime
