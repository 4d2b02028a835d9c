# One static library per room: mgplan_room(NAME SOURCES … DEPENDS …) makes target mgplan_NAME with alias mgplan::NAME.
# The global property MGPLAN_ROOMS lists the names.
add_library(mgplan_warnings INTERFACE)
# -Wno-restrict: GCC 12 warns about its own std::string (bug 105651).
target_compile_options(mgplan_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wno-restrict)

function(mgplan_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(mgplan_${name} STATIC ${ROOM_SOURCES})
  add_library(mgplan::${name} ALIAS mgplan_${name})
  target_include_directories(mgplan_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(mgplan_${name} PUBLIC ${ROOM_DEPENDS} PRIVATE mgplan_warnings ${ROOM_PRIVATE_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY MGPLAN_ROOMS ${name})
endfunction()
