#pragma once
// The file format safetensors (Hugging Face safetensors, README "Format"): eight bytes N, little-endian; N bytes of JSON,
//   {"__metadata__": {"key": "text", …}, "NAME": {"dtype": "F32", "shape": […], "data_offsets": [BEGIN, END]}, …}
// and the values, with offsets from the end of the JSON, without holes and overlaps.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/training/numeric_types.hpp"
#include "runtime/data/file_bytes.hpp"

namespace mgplan::runtime {

/// Longer headers are refused, as by the format's own library.
inline constexpr std::int64_t kMostHeaderBytes = 100'000'000;

struct SafetensorsTensor {
    std::string name;
    Dtype dtype = Dtype::fp32;
    std::vector<std::int64_t> shape;
    std::int64_t begin = 0, end = 0;  ///< bytes, from the first value's
    bool operator==(const SafetensorsTensor&) const = default;
    [[nodiscard]] std::int64_t elements() const { return (end - begin) / bytes_of(dtype); }
};

struct SafetensorsHeader {
    std::vector<SafetensorsTensor> tensors;  ///< by offset
    std::map<std::string, std::string, std::less<>> metadata;
    bool operator==(const SafetensorsHeader&) const = default;
};

/// The format's name of a type; nothing for types it does not have or we do not use.
[[nodiscard]] std::optional<std::string_view> safetensors_dtype(Dtype dtype);

/// All that comes before the values: length and JSON, filled up with blanks so that values begin at a multiple of `alignment` bytes.
[[nodiscard]] std::string safetensors_head(const SafetensorsHeader& header, std::size_t alignment = 8);

/// Parses the header's JSON text; `values` is the number of bytes after it in the file. Throws ConfigError naming `where` and the
/// reason for whatever breaks the format: sizes are compared with the file's before they are used.
[[nodiscard]] SafetensorsHeader parse_safetensors(std::string_view json, std::int64_t values, const std::string& where);

/// Reads a file's length field and JSON without parsing the JSON. Throws ConfigError, RunError.
[[nodiscard]] std::string read_safetensors_head(const FileBytes& file);

}  // namespace mgplan::runtime
